-- What runs say of themselves: progress, a message, a result. Apart from the jobs, because most say nothing.
CREATE TABLE results (
  job        BIGINT NOT NULL PRIMARY KEY REFERENCES jobs (seq) ON DELETE CASCADE,
  run        INTEGER NOT NULL,                          -- that said it: nobody else's report
  report     TEXT NOT NULL,                             -- JSON
  updated_at BIGINT NOT NULL
) {clustered};
