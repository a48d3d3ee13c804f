-- How the last run of a job ended and what it took: the database itself makes its event of that.

ALTER TABLE jobs ADD COLUMN reason TEXT;
ALTER TABLE jobs ADD COLUMN cpu_ms BIGINT;
ALTER TABLE jobs ADD COLUMN max_rss_kb BIGINT;
