-- As the log's index of a row's changes: a month that is archived brings it along.  Another one was built while writers waited, a
-- second for each million of changes.  The archive is read until the new one is there.

create index change_archive_row_id on bds.change_archive (row_id, company_id, id);
drop index bds.change_archive_row;
alter index bds.change_archive_row_id rename to change_archive_row;
