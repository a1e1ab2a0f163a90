-- Reads what speaks against the deletion of a topic: the settings of the topic $1, to which the
-- topic belongs if it is a companion, and how many messages of the topic $2 are not dead.
-- topic_close.sql runs before it, so that neither changes until the topic is gone. It locks
-- nothing.
SELECT t.settings, (SELECT count(*)
                    FROM punctual.message AS m
                    WHERE m.visible_at IS NOT NULL AND m.topic = (SELECT o.number FROM punctual.topic AS o WHERE o.name = $2::text))
FROM punctual.topic AS t
WHERE t.name = $1::text
