-- How a run ended, and what happened to a job, as data: nothing depends on the words of `error` and `reason`.

ALTER TABLE jobs ADD COLUMN outcome TEXT CHECK (outcome IN
  ('exited', 'signalled', 'timed_out', 'oom', 'not_started', 'cancelled', 'interrupted', 'no_resources', 'lost'));
ALTER TABLE events ADD COLUMN outcome TEXT CHECK (outcome IN
  ('exited', 'signalled', 'timed_out', 'oom', 'not_started', 'cancelled', 'interrupted', 'no_resources', 'lost'));
ALTER TABLE events ADD COLUMN kind TEXT NOT NULL DEFAULT 'run_ended' CHECK (kind IN
  ('run_ended', 'settle_refused', 'cancel_requested', 'cancel_refused', 'cancelled', 'replaced', 'batch_cancelled',
   'dependencies_met', 'dependency_broken', 'revived', 'not_revived', 'retried'));
