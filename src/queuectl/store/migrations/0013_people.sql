-- Who did what, and what was asked for twice.

CREATE TABLE audit (
  n      {serial},
  at     BIGINT NOT NULL,
  who    TEXT NOT NULL,
  action TEXT NOT NULL,                                 -- a word: cancel, retry, pause …
  target TEXT NOT NULL,                                 -- what it was done to
  detail TEXT NOT NULL
);

-- The answers to requests that named themselves, for those who ask again because they did not hear them.
CREATE TABLE submissions (
  key         TEXT PRIMARY KEY,
  fingerprint TEXT NOT NULL,                            -- of what was asked for
  ids         TEXT NOT NULL,                            -- of its jobs, separated by spaces
  at          BIGINT NOT NULL
);
CREATE INDEX submissions_at ON submissions (at);
