-- Of finished_at, which a claim does not touch: it tells if a job has finished as well as the state does.
CREATE TRIGGER jobs_departed AFTER UPDATE OF finished_at ON jobs
  WHEN OLD.finished_at IS NOT NULL AND OLD.state <> NEW.state
BEGIN
  INSERT INTO departed (queue, state, job, n) VALUES (OLD.queue, OLD.state, 0, 1)
      ON CONFLICT (queue, state, job) DO UPDATE SET n = n + 1;
END;

CREATE TRIGGER finished_deleted AFTER DELETE ON jobs
  WHEN OLD.finished_at IS NOT NULL
BEGIN
  INSERT INTO departed (queue, state, job, n) VALUES (OLD.queue, OLD.state, 0, 1)
      ON CONFLICT (queue, state, job) DO UPDATE SET n = n + 1;
END;
