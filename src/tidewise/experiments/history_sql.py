"""The SQL of the ready reports, over the views that `open_tables` registers."""

from __future__ import annotations

MONEY_BY_JOB = """
SELECT job,
       sum(cost) AS cost,
       max(currency) AS currency,
       try_divide(sum(cost), sum(sum(cost)) OVER ()) AS share,
       3600 * sum(cost) / sum(window_s) AS cost_per_hour,
       try_divide(sum(busy_share * window_s), sum(if(busy_share IS NULL, NULL, window_s))) AS busy_share
FROM observations_60s
WHERE cost IS NOT NULL
GROUP BY job
ORDER BY cost DESC, job
"""
"""What each job has cost, the dearest first."""

MONEY_BY_DAY = """
SELECT day, sum(cost) AS cost, max(currency) AS currency, count(DISTINCT job) AS jobs
FROM observations_60s
WHERE cost IS NOT NULL
GROUP BY day
ORDER BY day DESC
"""
"""What each day has cost, the newest first."""

OVERSIZED = """
WITH peaks AS (
    SELECT job,
           max(load_per_s_max) AS peak_per_s,
           max_by(busy_share, load_per_s_max) AS busy_at_peak,
           3600 * sum(cost) / sum(if(cost IS NULL, NULL, window_s)) AS paid_per_hour,
           max(currency) AS currency
    FROM observations_60s
    GROUP BY job
), newest AS (
    SELECT job, max_by(program, last_unix_s) AS program FROM performance GROUP BY job
), carried AS (
    SELECT performance.job,
           3600 * cost / window_s AS cost_per_hour,
           executors, slots_per_executor, cores_per_executor, memory_mib_per_executor, commit_interval_s,
           healthy_load_per_s_max
    FROM performance
    JOIN newest ON performance.job = newest.job AND performance.program <=> newest.program
    WHERE cost > 0 AND window_s > 0
), smallest AS (
    SELECT peaks.job, min_by(struct(carried.*), cost_per_hour) AS enough
    FROM peaks JOIN carried ON peaks.job = carried.job AND carried.healthy_load_per_s_max >= peaks.peak_per_s
    GROUP BY peaks.job
)
SELECT peaks.job, peak_per_s, busy_at_peak, paid_per_hour, currency,
       enough.cost_per_hour AS enough_per_hour,
       enough.executors, enough.slots_per_executor, enough.cores_per_executor, enough.memory_mib_per_executor,
       paid_per_hour - enough.cost_per_hour AS saved_per_hour
FROM peaks LEFT JOIN smallest ON peaks.job = smallest.job
WHERE paid_per_hour IS NOT NULL
ORDER BY saved_per_hour DESC NULLS LAST, job
"""
"""How busy each job was at its peak, and the cheapest configuration that has carried as much while it was healthy."""

PROMISES = """
WITH bad AS (
    SELECT job, window_start_unix_s AS begin_s, window_start_unix_s + 60 AS end_s, promised_s - good_s AS bad_s,
           coalesce(busy_share, 0) >= {busy} OR processed_rate_per_s < {behind} * input_rate_per_s
               OR backlog_records_max > promised_latency_p95_s * greatest(load_per_s, 1) AS is_overloaded
    FROM observations_60s
    WHERE promised_s > good_s
), events AS (
    SELECT job, 'failure' AS cause, at_unix_s AS begin_s, at_unix_s + took_s AS end_s,
           concat('a failure (', failure, ')') AS words
    FROM recoveries
    UNION ALL
    SELECT job, 'change', at_unix_s, at_unix_s + coalesce(took_s, 0),
           concat('a change (', mechanism, ', ', outcome, ')')
    FROM changes
), near AS (
    SELECT bad.job, bad.begin_s,
           min_by(struct(cause, words), struct(greatest(bad.begin_s - events.end_s, 0), cause = 'change')) AS event
    FROM bad JOIN events
      ON bad.job = events.job AND events.begin_s < bad.end_s AND events.end_s > bad.begin_s - {near_s}
    GROUP BY bad.job, bad.begin_s
), explained AS (
    SELECT bad.job, bad_s,
           coalesce(event.cause, if(is_overloaded, 'overload', 'unexplained')) AS cause,
           coalesce(event.words, if(is_overloaded, 'too much load', 'nothing that was reported')) AS words
    FROM bad LEFT JOIN near ON bad.job = near.job AND bad.begin_s = near.begin_s
), given AS (
    SELECT job, sum(promised_s) AS promised_s, sum(good_s) AS good_s FROM observations_60s GROUP BY job
)
SELECT explained.job,
       sum(bad_s) AS bad_s,
       any_value(good_s / promised_s) AS good_share,
       coalesce(sum(bad_s) FILTER (WHERE cause = 'failure'), 0) AS failure_s,
       coalesce(sum(bad_s) FILTER (WHERE cause = 'change'), 0) AS change_s,
       coalesce(sum(bad_s) FILTER (WHERE cause = 'overload'), 0) AS overload_s,
       coalesce(sum(bad_s) FILTER (WHERE cause = 'unexplained'), 0) AS unexplained_s,
       mode(words) AS mostly
FROM explained JOIN given ON explained.job = given.job
GROUP BY explained.job
ORDER BY bad_s DESC, job
"""
"""The bad seconds of each job by what was nearest in time before them: a failure, a change, too much load, nothing.

An event explains what is bad until {near_s} s after it was over; of two that are as near, the failure. To be filled
in: `busy`, `behind` and `near_s`.
"""

RECOVERIES = """
WITH late AS (
    SELECT job, run, line, at_unix_s, took_s, is_bound, promised_recovery_s, failure, configuration
    FROM recoveries
    WHERE took_s > promised_recovery_s
), failed_again AS (
    SELECT late.run, late.line, min_by(other.failure, other.at_unix_s) AS failure
    FROM late JOIN recoveries AS other
      ON late.job = other.job AND other.at_unix_s > late.at_unix_s AND other.at_unix_s < late.at_unix_s + late.took_s
    GROUP BY late.run, late.line
), changed AS (
    SELECT late.run, late.line, min_by(concat(mechanism, ', ', outcome), changes.at_unix_s) AS words
    FROM late JOIN changes
      ON late.job = changes.job AND changes.at_unix_s < late.at_unix_s + late.took_s
     AND changes.at_unix_s + coalesce(changes.took_s, 0) > late.at_unix_s
    GROUP BY late.run, late.line
), filled AS (
    SELECT late.run, late.line, max(busy_share) AS busy_share
    FROM late JOIN observations_60s AS seen
      ON late.job = seen.job AND window_start_unix_s < late.at_unix_s
     AND window_start_unix_s + 60 > late.at_unix_s - {near_s}
    GROUP BY late.run, late.line
)
SELECT late.job, timestamp_seconds(at_unix_s) AS failed_at, late.failure, took_s, is_bound, promised_recovery_s,
       configuration,
       CASE WHEN failed_again.failure IS NOT NULL THEN concat('it failed again meanwhile (', failed_again.failure, ')')
            WHEN changed.words IS NOT NULL THEN concat('a change was on (', changed.words, ')')
            WHEN filled.busy_share >= {busy} THEN 'too much load: it was full before it failed'
       END AS reason
FROM late
LEFT JOIN failed_again ON late.run = failed_again.run AND late.line = failed_again.line
LEFT JOIN changed ON late.run = changed.run AND late.line = changed.line
LEFT JOIN filled ON late.run = filled.run AND late.line = filled.line
ORDER BY took_s / promised_recovery_s DESC, late.job, failed_at
"""
"""The failures that took longer to get over than was promised, the worst first, each with what may have been why.

To be filled in: `busy` and `near_s`, as for the others.
"""
