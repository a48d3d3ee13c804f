-- Many machines, one queue.

-- Where a worker's pid means something: this boot of its machine, and its pid namespace.
ALTER TABLE workers ADD COLUMN place TEXT NOT NULL DEFAULT '';

-- The machine and folder that hold the log of the last run, if that may be another machine.
ALTER TABLE jobs ADD COLUMN log_place TEXT;
