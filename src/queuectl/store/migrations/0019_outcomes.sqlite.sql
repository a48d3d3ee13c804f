DROP TRIGGER run_ended;

CREATE TRIGGER run_ended AFTER UPDATE OF state ON jobs
  WHEN OLD.state = 'processing' AND NEW.state <> 'processing'
BEGIN
  INSERT INTO events (job, n, at, state, run, worker_id, kind, reason, outcome, exit_code, signal, duration_ms, cpu_ms,
                      max_rss_kb, started_at)
  VALUES (NEW.seq, (SELECT COALESCE(max(n), 0) + 1 FROM events WHERE job = NEW.seq), NEW.updated_at, NEW.state,
          NEW.run, NEW.worker_id, 'run_ended', NEW.reason, NEW.outcome, NEW.exit_code, NEW.signal, NEW.duration_ms,
          NEW.cpu_ms, NEW.max_rss_kb, NEW.started_at);
END;
