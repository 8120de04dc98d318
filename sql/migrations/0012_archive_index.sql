-- As the log's index of a row's changes: a month that is archived brings it along.  Another one was built while writers waited, a
-- second for each million of changes.

drop index bds.change_archive_row;
create index change_archive_row on bds.change_archive (row_id, company_id, id);
