package punctual

// GroupTopic returns the name of the topic in which a group has its copies of the messages of a topic (Settings.Groups). For
// example, the group billing of the topic orders has its copies in orders@g.billing.
func GroupTopic(topic, group string) string { return topic + "@g." + group }
