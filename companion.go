package punctual

// The ends of the names of companions that Punctual itself makes, behind the name of their topic. GroupTopic names the companions of
// groups, and storekit.OutTopic those with follow-ups to forward.
const (
	// ScheduleSuffix: reports@cron has the recurring schedules of reports, each of them a message.
	ScheduleSuffix = "@cron"
	// EventSuffix: orders@events has what orders tells of its messages (Settings.Emit).
	EventSuffix = "@events"
	// BulkSuffix: orders@bulk has the places of the shifts of orders (BulkShift), so that one that was stopped can go on.
	BulkSuffix = "@bulk"
)

// GroupTopic returns the name of the topic in which a group has its copies of the messages of a topic (Settings.Groups). For
// example, the group billing of the topic orders has its copies in orders@g.billing.
func GroupTopic(topic, group string) string { return topic + "@g." + group }
