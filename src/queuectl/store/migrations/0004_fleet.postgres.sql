-- What a busy table needs: rows that come and go are vacuumed often and at full speed.
ALTER TABLE jobs SET (
  fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
  autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE events SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE workers SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50);

-- Who writes an event has just locked its job, so there is no need to look for it, once for each event. Events go with
-- their jobs all the same: see count_deleted.
ALTER TABLE events DROP CONSTRAINT job_events_job_fkey;

-- Counts are only ever added to, so that no two transactions wait for each other; workers sum them up now and then.
ALTER TABLE counts DROP CONSTRAINT counts_pkey;
ALTER TABLE counts SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

CREATE FUNCTION count_inserted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO counts (queue, state, n)
  SELECT queue, state, count(*) FROM new_jobs WHERE state <> 'processing' GROUP BY queue, state;
  RETURN NULL;
END $$;

CREATE FUNCTION count_moved() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO counts (queue, state, n)
  SELECT queue, state, sum(n)
    FROM (SELECT queue, state, 1 AS n FROM new_jobs UNION ALL SELECT queue, state, -1 FROM old_jobs) AS moves
   WHERE state <> 'processing'
   GROUP BY queue, state
  HAVING sum(n) <> 0;
  RETURN NULL;
END $$;

CREATE FUNCTION count_deleted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO counts (queue, state, n)
  SELECT queue, state, -count(*) FROM old_jobs WHERE state <> 'processing' GROUP BY queue, state;
  DELETE FROM events WHERE job IN (SELECT seq FROM old_jobs);
  RETURN NULL;
END $$;

CREATE TRIGGER jobs_inserted AFTER INSERT ON jobs
  REFERENCING NEW TABLE AS new_jobs FOR EACH STATEMENT EXECUTE FUNCTION count_inserted();
CREATE TRIGGER jobs_moved AFTER UPDATE ON jobs
  REFERENCING OLD TABLE AS old_jobs NEW TABLE AS new_jobs FOR EACH STATEMENT EXECUTE FUNCTION count_moved();
CREATE TRIGGER jobs_deleted AFTER DELETE ON jobs
  REFERENCING OLD TABLE AS old_jobs FOR EACH STATEMENT EXECUTE FUNCTION count_deleted();
