"""Nexmark: the queries of an auction house over people, auctions and bids, and the program that runs them."""
