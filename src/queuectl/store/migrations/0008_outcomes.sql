-- Which ends of a run are worth another try. Words separated by spaces: exit codes, signals, "timeout".
ALTER TABLE jobs ADD COLUMN retry_on TEXT;     -- only these, if given
ALTER TABLE jobs ADD COLUMN no_retry_on TEXT;  -- not these
-- How often it asked for more time (exit code 75).
ALTER TABLE jobs ADD COLUMN snoozes INTEGER NOT NULL DEFAULT 0;
