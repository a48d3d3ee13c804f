-- Whom to tell of the ends of runs. Each notification is a job of its own, enqueued in the transaction that ends the run.

CREATE TABLE hooks (
  name          {ascii} PRIMARY KEY,
  events        TEXT NOT NULL,                          -- words: completed, failed, dead
  queue         {ascii},                                -- only of the jobs of this one; null: of all
  only_named    BOOLEAN NOT NULL DEFAULT FALSE,         -- only of the jobs that name it
  url           TEXT,                                   -- where to post it: either this
  command       TEXT,                                   -- or what to run
  cwd           TEXT,                                   -- and where
  secret        TEXT,                                   -- what a post is signed with
  allow_private BOOLEAN NOT NULL DEFAULT FALSE,         -- may the url lead into a private network?
  paused        BOOLEAN NOT NULL DEFAULT FALSE,
  reason        TEXT,                                   -- why it is paused, if nobody has said so
  created_at    BIGINT NOT NULL,
  CHECK ((url IS NULL) <> (command IS NULL)),
  CHECK ((url IS NULL) = (secret IS NULL)),
  CHECK (queue IS NULL OR NOT only_named)
);

ALTER TABLE jobs ADD COLUMN notify TEXT;                -- words: the hooks that this job names
