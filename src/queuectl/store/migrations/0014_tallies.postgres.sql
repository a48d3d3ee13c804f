-- Whoever writes one of these rows has the job locked that it names, so that no two transactions wait for each other;
-- workers sum them up now and then.
CREATE FUNCTION count_departed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO departed (queue, state, job, n) VALUES (OLD.queue, OLD.state, OLD.seq, 1)
      ON CONFLICT (queue, state, job) DO UPDATE SET n = departed.n + 1;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION count_deleted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO counts (queue, state, n)
  SELECT queue, state, -count(*) FROM old_jobs WHERE state <> 'processing' GROUP BY queue, state;
  INSERT INTO departed (queue, state, job, n)
  SELECT queue, state, min(seq), count(*) FROM old_jobs WHERE finished_at IS NOT NULL GROUP BY queue, state
      ON CONFLICT (queue, state, job) DO UPDATE SET n = departed.n + excluded.n;
  DELETE FROM events WHERE job IN (SELECT seq FROM old_jobs);
  RETURN NULL;
END $$;

-- Of finished_at, which a claim does not touch: it tells if a job has finished as well as the state does.
CREATE TRIGGER jobs_departed AFTER UPDATE OF finished_at ON jobs
  FOR EACH ROW WHEN (OLD.finished_at IS NOT NULL AND OLD.state <> NEW.state) EXECUTE FUNCTION count_departed();

ALTER TABLE departed SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
-- A few rows that are added to each second: room for their next versions beside them.
ALTER TABLE tallies SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
