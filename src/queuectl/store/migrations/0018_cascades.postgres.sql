CREATE OR REPLACE FUNCTION count_deleted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO counts (queue, state, n)
  SELECT queue, state, -count(*) FROM old_jobs WHERE state <> 'processing' GROUP BY queue, state;
  INSERT INTO departed (queue, state, job, n)
  SELECT queue, state, min(seq), count(*) FROM old_jobs WHERE finished_at IS NOT NULL GROUP BY queue, state
      ON CONFLICT (queue, state, job) DO UPDATE SET n = departed.n + excluded.n;
  IF EXISTS (SELECT 1 FROM old_jobs WHERE state = 'dead' AND batch IS NOT NULL) THEN
    -- In one order, so that no two wait for each other.
    PERFORM 1 FROM batches WHERE name IN (SELECT batch FROM old_jobs WHERE state = 'dead') ORDER BY name FOR UPDATE;
    UPDATE batches SET deleted = batches.deleted + gone.n
      FROM (SELECT batch, count(*) AS n FROM old_jobs WHERE state = 'dead' GROUP BY batch) AS gone
     WHERE batches.name = gone.batch;
  END IF;
  DELETE FROM events WHERE job IN (SELECT seq FROM old_jobs);
  RETURN NULL;
END $$;
