-- Many machines, one queue.

-- Where a worker's pid means something: this boot of its machine, and its pid namespace.
ALTER TABLE workers ADD COLUMN place TEXT NOT NULL DEFAULT '';

-- Until when it promised to be heard of again: what others may judge it by.
ALTER TABLE workers ADD COLUMN expires_at BIGINT NOT NULL DEFAULT 0;

-- The machine and folder that hold the log of the last run, if that may be another machine.
ALTER TABLE jobs ADD COLUMN log_place TEXT;
