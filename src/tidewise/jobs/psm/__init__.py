"""The price search machine: five queries over clicks, impressions and searches, and the program that runs them."""
