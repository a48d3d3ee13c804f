-- Keeps the counts. One writer at a time makes plain counters the right thing here.

CREATE TRIGGER jobs_inserted AFTER INSERT ON jobs BEGIN
  INSERT INTO counts (queue, state, n) VALUES (NEW.queue, NEW.state, 1)
      ON CONFLICT (queue, state) DO UPDATE SET n = n + 1;
END;

CREATE TRIGGER jobs_moved AFTER UPDATE OF state ON jobs WHEN OLD.state <> NEW.state BEGIN
  UPDATE counts SET n = n - 1 WHERE queue = OLD.queue AND state = OLD.state;
  INSERT INTO counts (queue, state, n) VALUES (NEW.queue, NEW.state, 1)
      ON CONFLICT (queue, state) DO UPDATE SET n = n + 1;
END;

CREATE TRIGGER jobs_deleted AFTER DELETE ON jobs BEGIN
  UPDATE counts SET n = n - 1 WHERE queue = OLD.queue AND state = OLD.state;
END;
