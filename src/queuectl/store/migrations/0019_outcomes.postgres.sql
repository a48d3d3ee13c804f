CREATE OR REPLACE FUNCTION count_moved() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO counts (queue, state, n)
  SELECT queue, state, sum(n)
    FROM (SELECT queue, state, 1 AS n FROM new_jobs UNION ALL SELECT queue, state, -1 FROM old_jobs) AS moves
   WHERE state <> 'processing'
   GROUP BY queue, state
  HAVING sum(n) <> 0;
  -- A statement that ends runs does nothing else, so the two tables need not be joined.
  IF EXISTS (SELECT 1 FROM old_jobs WHERE state = 'processing') THEN
    INSERT INTO events (job, n, at, state, run, worker_id, kind, reason, outcome, exit_code, signal,
                        duration_ms, cpu_ms, max_rss_kb, started_at)
    SELECT seq, (SELECT COALESCE(max(n), 0) + 1 FROM events WHERE job = seq), updated_at, state, run, worker_id,
           'run_ended', reason, outcome, exit_code, signal, duration_ms, cpu_ms, max_rss_kb, started_at
      FROM new_jobs
     WHERE state <> 'processing';
  END IF;
  RETURN NULL;
END $$;
