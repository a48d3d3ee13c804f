-- Figures that outlive the jobs they were taken from.

-- How many jobs have left a finished state since: were deleted, or live again. With those that `counts` has in that
-- state, that is how many have ever come to it. Kept by triggers.
CREATE TABLE departed (
  queue {ascii} NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('completed', 'dead', 'cancelled')),
  job   BIGINT NOT NULL,                                -- one of those that left; 0 for a sum
  n     BIGINT NOT NULL CHECK (n > 0),
  PRIMARY KEY (queue, state, job)
) {clustered};

-- How many runs have ended, and how long they and the waiting for them took. Added up by workers, about once a second.
CREATE TABLE tallies (
  span   INTEGER NOT NULL,                              -- 0: ever, for each queue; 60 and 3600 seconds: all queues
  moment BIGINT NOT NULL,                               -- when that span began
  queue  {ascii} NOT NULL,
  state  TEXT NOT NULL,                                 -- what the runs made of their jobs
  what   TEXT NOT NULL CHECK (what IN ('run', 'wait')),
  bound  BIGINT NOT NULL,                               -- those that took up to so many milliseconds: see tally.py
  n      BIGINT NOT NULL CHECK (n > 0),
  ms     BIGINT NOT NULL,                               -- all of these together
  PRIMARY KEY (span, moment, queue, state, what, bound),
  CHECK ((span = 0) = (queue <> '')),
  CHECK (span > 0 OR moment = 0)
) {clustered};
