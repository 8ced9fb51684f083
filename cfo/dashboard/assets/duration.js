// Durations and times for people.

const UNITS = [["y", 31_536_000], ["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

/** Returns a duration in seconds with its largest unit, as kubectl shows ages: 45s, 12m, 3h, 20d, 9y. */
export const duration = (seconds) => {
  const whole = Math.max(0, Math.floor(seconds));
  const [unit, size] = UNITS.find(([, length]) => whole >= 2 * length) || ["s", 1];
  return `${Math.floor(whole / size)}${unit}`;
};

/** Returns the age of a time in milliseconds, or an empty string. */
export const age = (time, now) => (time ? duration((now - time) / 1000) : "");

/** Returns a date in UTC: certificates expire at midnight UTC, which is another day in some time zones. */
export const date = (time) => (time ? new Date(time).toLocaleDateString(undefined, { dateStyle: "medium", timeZone: "UTC" }) : "");

/** Returns a time of day in the local time zone. */
export const clock = (time) => new Date(time).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
