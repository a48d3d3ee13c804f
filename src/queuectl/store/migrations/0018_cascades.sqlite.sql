CREATE TRIGGER dead_deleted AFTER DELETE ON jobs
  WHEN OLD.state = 'dead' AND OLD.batch IS NOT NULL
BEGIN
  UPDATE batches SET deleted = deleted + 1 WHERE name = OLD.batch;
END;
