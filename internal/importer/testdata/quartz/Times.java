// Times draws expressions and prints with each the times at which Quartz's CronExpression comes, in
// the form of ../asynq/crontimes. It was run with Quartz 2.3.2 and Java 17; Store.java has the path:
//
//	java -cp $path Times > ../../../cron/testdata/quartz.txt
import java.time.Instant;
import java.util.Date;
import java.util.Map;
import java.util.Random;
import java.util.TimeZone;
import org.quartz.CronExpression;

public class Times {
  static final Random random = new Random(38);

  /** The clock changes of 2025, at which three of four searches begin. */
  static final Map<String, String[]> changes = new java.util.TreeMap<>(Map.of(
      "UTC", new String[] {"2025-02-28T12:00:00Z"},
      "Europe/Berlin", new String[] {"2025-03-30T01:00:00Z", "2025-10-26T01:00:00Z"},
      "America/New_York", new String[] {"2025-03-09T07:00:00Z", "2025-11-02T06:00:00Z"},
      "Australia/Lord_Howe", new String[] {"2025-04-05T15:00:00Z", "2025-10-04T15:30:00Z"},
      "America/Nuuk", new String[] {"2025-03-30T01:00:00Z", "2025-10-26T01:00:00Z"},
      "Antarctica/Troll", new String[] {"2025-03-30T01:00:00Z", "2025-10-26T01:00:00Z"},
      "Africa/Cairo", new String[] {"2025-04-24T22:00:00Z", "2025-10-30T21:00:00Z"}));

  public static void main(String[] args) throws Exception {
    String[] zones = changes.keySet().toArray(new String[0]);
    for (int n = 0; n < 1000; n++) {
      String zone = pick(zones);
      long start = Instant.parse("2025-01-01T00:00:00Z").getEpochSecond() + 60L * random.nextInt(300 * 24 * 60);
      if (random.nextInt(4) > 0) start = Instant.parse(pick(changes.get(zone))).getEpochSecond() - 60L * random.nextInt(36 * 60);
      String text = draw();
      CronExpression e = new CronExpression(text);
      e.setTimeZone(TimeZone.getTimeZone(zone));
      StringBuilder after = new StringBuilder();
      Date t = new Date(start * 1000);
      for (int i = 0; i < 8 && (t = e.getTimeAfter(t)) != null; i++) after.append(i == 0 ? "" : " ").append(t.getTime() / 1000 - start);
      System.out.println(zone + "\t" + start + "\t" + text + "\t" + after);
    }
  }

  static String pick(String... of) {
    return of[random.nextInt(of.length)];
  }

  static String draw() {
    String second = pick("0", "0", "0", "0", "30", "*/20", "0/25");
    String minute = pick("0", "30", "*", "*/15", "0/10", "15,45", field(0, 59));
    String hour = pick("*", "2", "1-3", "0", "23", "*/2", "22-2", field(0, 23), field(0, 23));
    String month = pick("*", "*", "*", field(1, 12), "MAR,OCT", "NOV-APR");
    String day = pick("*", "*", "1/2", "*/3", "L", "LW", "15W", "25-3", field(1, 28));
    String week = pick("2-6", "MON-FRI", "FRI-MON", "SAT", "1", "6L", "2#1", "L", "*/2", "2/2", field(1, 7));
    boolean byWeek = random.nextInt(3) == 0;
    return String.join(" ", second, minute, hour, byWeek ? "?" : day, month, byWeek ? week : "?");
  }

  /** A list of one to three elements. */
  static String field(int first, int last) {
    StringBuilder list = new StringBuilder();
    for (int n = 1 + random.nextInt(3) * random.nextInt(2); n > 0; n--) {
      int from = first + random.nextInt(last - first + 1);
      list.append(list.length() == 0 ? "" : ",").append(from);
      if (random.nextInt(5) < 2) list.append("-").append(first + random.nextInt(last - first + 1));
      if (random.nextInt(3) == 0) list.append("/").append(1 + random.nextInt(last));
    }
    return list.toString();
  }
}
