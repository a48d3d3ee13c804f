-- Running jobs are few and have an index of their own: they are counted when somebody asks.

DROP TRIGGER queue_counted;
DROP TRIGGER jobs_moved;

DELETE FROM counts WHERE state = 'processing';

CREATE TRIGGER queue_counted AFTER INSERT ON counts BEGIN
  INSERT OR IGNORE INTO counts (queue, state, n)
  VALUES (NEW.queue, 'pending', 0), (NEW.queue, 'completed', 0), (NEW.queue, 'failed', 0), (NEW.queue, 'dead', 0),
         (NEW.queue, 'cancelled', 0), (NEW.queue, 'blocked', 0);
END;

CREATE TRIGGER jobs_left AFTER UPDATE OF state ON jobs
  WHEN OLD.state <> NEW.state AND OLD.state <> 'processing'
BEGIN
  UPDATE counts SET n = n - 1 WHERE queue = OLD.queue AND state = OLD.state;
END;

CREATE TRIGGER jobs_came AFTER UPDATE OF state ON jobs
  WHEN OLD.state <> NEW.state AND NEW.state <> 'processing'
BEGIN
  UPDATE counts SET n = n + 1 WHERE queue = NEW.queue AND state = NEW.state;
END;
