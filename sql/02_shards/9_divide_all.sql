-- What migrations have made.

select bds_shards.divide(t) from bds_shards.whole_tables() t where bds_shards.number_of_shards() is not null;
