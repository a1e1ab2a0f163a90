// Store writes the triggers of quartz-2.3.2.sql with Quartz's own JDBC store, once by a scheduler
// "shop" and once by one "props" that keeps the data of jobs as properties. It was run with Quartz
// 2.3.2 (Debian's libquartz2-java 2.3.2-4), Java 17 and PostgreSQL 15:
//
//	jar=/usr/share/java
//	path=$jar/quartz2.jar:$jar/postgresql.jar:$jar/c3p0.jar:$jar/slf4j-api.jar:$jar/slf4j-nop.jar:.
//	unzip -p $jar/quartz2.jar org/quartz/impl/jdbcjobstore/tables_postgres.sql | psql -d shop
//	javac -cp $path Store.java && java -cp $path Store jdbc:postgresql://localhost/shop USER
//	pg_dump --no-owner --inserts -d shop -t 'qrtz_*' | grep -v -e '^--' -e '^SET' -e '^SELECT' \
//	  -e '^CREATE INDEX' -e '^\\' -e '^$' > ../quartz-2.3.2.sql
import static org.quartz.CronScheduleBuilder.cronSchedule;
import static org.quartz.JobBuilder.newJob;
import static org.quartz.SimpleScheduleBuilder.simpleSchedule;
import static org.quartz.TriggerBuilder.newTrigger;

import java.time.Instant;
import java.util.Date;
import java.util.Properties;
import java.util.TimeZone;
import org.quartz.*;
import org.quartz.DateBuilder.IntervalUnit;
import org.quartz.impl.StdSchedulerFactory;
import org.quartz.impl.calendar.HolidayCalendar;
import org.quartz.impl.triggers.SimpleTriggerImpl;

public class Store {
  public static class Plain implements Job {
    public void execute(JobExecutionContext c) {}
  }

  @DisallowConcurrentExecution
  public static class Single extends Plain {}

  /** A trigger of an unknown class, which Quartz stores as a blob. */
  public static class Own extends SimpleTriggerImpl {
    @Override
    public boolean hasAdditionalProperties() {
      return true;
    }
  }

  static Scheduler scheduler(String url, String user, String name, String useProperties) throws Exception {
    Properties p = new Properties();
    p.put("org.quartz.scheduler.instanceName", name);
    p.put("org.quartz.threadPool.class", "org.quartz.simpl.SimpleThreadPool");
    p.put("org.quartz.threadPool.threadCount", "1");
    p.put("org.quartz.jobStore.class", "org.quartz.impl.jdbcjobstore.JobStoreTX");
    p.put("org.quartz.jobStore.driverDelegateClass", "org.quartz.impl.jdbcjobstore.PostgreSQLDelegate");
    p.put("org.quartz.jobStore.dataSource", "db");
    p.put("org.quartz.jobStore.useProperties", useProperties);
    p.put("org.quartz.dataSource.db.driver", "org.postgresql.Driver");
    p.put("org.quartz.dataSource.db.URL", url);
    p.put("org.quartz.dataSource.db.user", user);
    p.put("org.quartz.dataSource.db.maxConnections", "3");
    return new StdSchedulerFactory(p).getScheduler();
  }

  static JobDetail job(Class<? extends Job> type, String name, String... data) {
    JobBuilder b = newJob(type).withIdentity(name, "reports");
    for (int i = 0; i < data.length; i += 2) b.usingJobData(data[i], data[i + 1]);
    return b.build();
  }

  public static void main(String[] args) throws Exception {
    Date start = Date.from(Instant.parse("2027-01-01T00:00:07Z"));
    TimeZone berlin = TimeZone.getTimeZone("Europe/Berlin");
    Scheduler shop = scheduler(args[0], args[1], "shop", "false");
    HolidayCalendar holidays = new HolidayCalendar();
    holidays.addExcludedDate(Date.from(Instant.parse("2026-12-24T00:00:00Z")));
    shop.addCalendar("holidays", holidays, false, false);

    cron(shop, job(Plain.class, "weekdays", "region", "eu"), cronSchedule("0 0 9 ? * 2-6").inTimeZone(berlin), start, null);
    cron(shop, job(Plain.class, "night"), cronSchedule("0 30 2 * * ?").inTimeZone(berlin).withMisfireHandlingInstructionDoNothing(), start, Date.from(Instant.parse("2030-01-01T00:00:00Z")));
    cron(shop, job(Plain.class, "backlog"), cronSchedule("0 0 12 LW * ?").inTimeZone(TimeZone.getTimeZone("UTC")).withMisfireHandlingInstructionIgnoreMisfires(), start, null);
    cron(shop, job(Plain.class, "shortmonth"), cronSchedule("0 0 12 31W * ?").inTimeZone(berlin), start, null);
    cron(shop, job(Plain.class, "paused"), cronSchedule("0 0 6 * * ?").inTimeZone(TimeZone.getTimeZone("UTC")), start, null);
    shop.pauseTrigger(TriggerKey.triggerKey("paused", "DEFAULT"));
    cron(shop, job(Single.class, "single"), cronSchedule("0 0/10 * * * ?").inTimeZone(TimeZone.getTimeZone("UTC")), start, null);
    cron(shop, newJob(Plain.class).withIdentity("recover", "reports").requestRecovery().build(), cronSchedule("0 0 7 * * ?").inTimeZone(TimeZone.getTimeZone("UTC")), start, null);
    cron(shop, job(Plain.class, "past"), cronSchedule("0 0 8 * * ?").inTimeZone(TimeZone.getTimeZone("UTC")), Date.from(Instant.parse("2026-11-20T00:00:00Z")), null);

    shop.scheduleJob(job(Plain.class, "holidays"), newTrigger().withIdentity("holidays").startAt(start).modifiedByCalendar("holidays").withSchedule(cronSchedule("0 0 9 * * ?")).build());
    shop.scheduleJob(job(Plain.class, "owndata", "a", "1"), newTrigger().withIdentity("owndata").startAt(start).usingJobData("b", "2").withPriority(10).withSchedule(cronSchedule("0 0 9 * * ?").inTimeZone(TimeZone.getTimeZone("UTC"))).build());
    shop.scheduleJob(job(Plain.class, "poll"), newTrigger().withIdentity("poll").startAt(start).withSchedule(simpleSchedule().withIntervalInSeconds(90).repeatForever()).build());
    shop.scheduleJob(job(Plain.class, "five"), newTrigger().withIdentity("five").startAt(Date.from(Instant.parse("2027-01-01T00:00:00Z"))).withSchedule(simpleSchedule().withIntervalInMinutes(1).withRepeatCount(4)).build());
    shop.scheduleJob(job(Plain.class, "quick"), newTrigger().withIdentity("quick").startAt(start).withSchedule(simpleSchedule().withIntervalInMilliseconds(1500).repeatForever()).build());
    shop.scheduleJob(job(Plain.class, "once"), newTrigger().withIdentity("once").startAt(start).build());
    shop.scheduleJob(job(Plain.class, "monthly"), newTrigger().withIdentity("monthly").startAt(start).withSchedule(CalendarIntervalScheduleBuilder.calendarIntervalSchedule().withInterval(1, IntervalUnit.MONTH)).build());
    shop.scheduleJob(job(Plain.class, "office"), newTrigger().withIdentity("office").startAt(start).withSchedule(DailyTimeIntervalScheduleBuilder.dailyTimeIntervalSchedule().startingDailyAt(TimeOfDay.hourAndMinuteOfDay(9, 0)).withIntervalInHours(1)).build());
    Own own = new Own();
    own.setKey(TriggerKey.triggerKey("own"));
    own.setStartTime(start);
    own.setRepeatInterval(60_000);
    own.setRepeatCount(SimpleTrigger.REPEAT_INDEFINITELY);
    shop.scheduleJob(job(Plain.class, "own"), own);
    shop.shutdown();

    Scheduler props = scheduler(args[0], args[1], "props", "true");
    props.scheduleJob(job(Plain.class, "merged", "region", "eu", "note", "é = 1"), newTrigger().withIdentity("merged").startAt(start).usingJobData("region", "us").withSchedule(cronSchedule("0 0 9 * * ?").inTimeZone(TimeZone.getTimeZone("UTC"))).build());
    props.shutdown();
  }

  static void cron(Scheduler s, JobDetail job, ScheduleBuilder<?> times, Date from, Date until) throws Exception {
    s.scheduleJob(job, newTrigger().withIdentity(job.getKey().getName()).startAt(from).endAt(until).withSchedule(times).build());
  }
}
