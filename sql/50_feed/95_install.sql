-- What is generated for the entities that are registered already.

select bds_feed.install();
