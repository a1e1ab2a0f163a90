#!/usr/bin/env bash
# Quartz 2.3.2: where clocks are set back, CronExpression takes the second of two equal times on the
# wall even when it is asked from the first. So "every 15 minutes" stands still for 75 minutes that
# night, and "every second" for an hour. Where clocks are set forward, a time in the gap is lost for
# that day; where the gap is the last hour of a day (Nuuk), so is the same time of the next day.
# robfig/cron and cron-parser come in both passes.
#
# Needs java, javac, and apt-get of Debian 12, whose libquartz2-java 2.3.2-4 has the jar of Quartz
# 2.3.2. Run on 2026-11-29 with Java 17; the output is below.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download -qq libquartz2-java=2.3.2-4 libslf4j-java=1.7.32-1 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" .; done
path=usr/share/java/quartz2.jar:usr/share/java/slf4j-api.jar:usr/share/java/slf4j-nop.jar:.
cat >Show.java <<'JAVA'
import java.time.*;
import java.time.format.DateTimeFormatter;
import java.util.*;
import org.quartz.CronExpression;

public class Show {
  public static void main(String[] args) throws Exception {
    show("0 0/15 * * * ?", "Europe/Berlin", "2027-10-30T23:10:00Z", 6);
    show("0 30 2 * * ?", "Europe/Berlin", "2027-03-27T12:00:00Z", 1);
    show("0 30 23 * * ?", "America/Nuuk", "2027-03-27T12:00:00Z", 1);
  }

  static void show(String text, String zone, String from, int n) throws Exception {
    CronExpression e = new CronExpression(text);
    e.setTimeZone(TimeZone.getTimeZone(zone));
    StringBuilder out = new StringBuilder(text + " " + zone + ":");
    for (Date t = Date.from(Instant.parse(from)); n > 0; n--) {
      t = e.getTimeAfter(t);
      out.append(t.toInstant().atZone(ZoneId.of(zone)).format(DateTimeFormatter.ofPattern(" MM-dd'T'HH:mmx")));
    }
    System.out.println(out);
  }
}
JAVA
javac -cp "$path" Show.java
seen=$(java -cp "$path" Show)
printf '%s\n' "$seen"
diff <(printf '%s\n' "$seen") - <<'TEXT'
0 0/15 * * * ? Europe/Berlin: 10-31T01:15+02 10-31T01:30+02 10-31T01:45+02 10-31T02:00+01 10-31T02:15+01 10-31T02:30+01
0 30 2 * * ? Europe/Berlin: 03-29T02:30+02
0 30 23 * * ? America/Nuuk: 03-29T23:30-01
TEXT
