-- One event for each run: its end, which also tells when it began. What runs now is told by the job's own row.

ALTER TABLE events ADD COLUMN started_at BIGINT;

UPDATE events
   SET started_at = (SELECT min(began.at) FROM events AS began
                      WHERE began.job = events.job AND began.run = events.run AND began.reason = 'started')
 WHERE duration_ms IS NOT NULL;

DELETE FROM events WHERE reason = 'started';
