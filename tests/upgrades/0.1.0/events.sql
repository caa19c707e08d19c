PRAGMA user_version = 0;
BEGIN TRANSACTION;
CREATE TABLE events (
    seq INTEGER PRIMARY KEY, origin TEXT NOT NULL, life INTEGER NOT NULL, number INTEGER NOT NULL,
    at_ms INTEGER NOT NULL, stored_ms INTEGER NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL,
    reason TEXT NOT NULL, evidence TEXT NOT NULL, account TEXT NOT NULL,
    UNIQUE (origin, life, number));
INSERT INTO "events" VALUES(1,'a614d5d677c470e449bbf1303c91f30f',1795317143,1,1795317143778,1795317143778,'old','started','old','its first life, as far as the file of events goes','','');
INSERT INTO "events" VALUES(2,'a614d5d677c470e449bbf1303c91f30f',1795317143,2,1795317143802,1795317143802,'old','stopped','old','','','');
CREATE INDEX by_time ON events (at_ms);
CREATE INDEX by_account ON events (account, seq);
COMMIT;
