#include "text/template/strftime.h"

#include <fmt/format.h>

#include <array>

#include "text/template/fault.h"

namespace lode::text::jinja {
namespace {

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};

bool is_leap(int year) {
  return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

int day_of_year(const DateTime& t) {  // 0 to 365
  static constexpr int kBefore[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  return kBefore[t.month - 1] + (t.month > 2 && is_leap(t.year)) + t.day - 1;
}

int weekday(const DateTime& t) {  // 0: Sunday
  const int y = t.year - 1;
  return (1 + y * 365 + y / 4 - y / 100 + y / 400 + day_of_year(t)) % 7;
}

struct IsoWeek {
  int year, week;
};

int iso_weeks(int year) {
  const DateTime first{year, 1, 1};
  const int day = weekday(first);
  return day == 4 || (day == 3 && is_leap(year)) ? 53 : 52;
}

IsoWeek iso_week(const DateTime& t) {
  const int day = (weekday(t) + 6) % 7;  // 0: Monday
  const int week = (day_of_year(t) - day + 10) / 7;
  if (week < 1) return {t.year - 1, iso_weeks(t.year - 1)};
  if (week > iso_weeks(t.year)) return {t.year + 1, 1};
  return {t.year, week};
}

// `pad`: '\0' as the directive has it, '-' none, '_' spaces, '0' zeros.
std::string number(int value, int width, char fill, char pad) {
  if (pad == '-') return fmt::format("{}", value);
  if (pad == '_' || (pad == '\0' && fill == ' ')) return fmt::format("{:{}}", value, width);
  return fmt::format("{:0{}}", value, width);
}

std::string directive(char c, char pad, const DateTime& t) {
  const auto num = [&](int value, int width = 2, char fill = '0') { return number(value, width, fill, pad); };
  const int hour12 = t.hour % 12 == 0 ? 12 : t.hour % 12;
  const auto day = static_cast<std::size_t>(weekday(t));
  const auto month = static_cast<std::size_t>(t.month - 1);
  switch (c) {
    case 'a': return std::string(kDays[day].substr(0, 3));
    case 'A': return std::string(kDays[day]);
    case 'b':
    case 'h': return std::string(kMonths[month].substr(0, 3));
    case 'B': return std::string(kMonths[month]);
    case 'C': return num(t.year / 100);
    case 'c': return format_time("%a %b %e %H:%M:%S %Y", t);
    case 'd': return num(t.day);
    case 'D':
    case 'x': return format_time("%m/%d/%y", t);
    case 'e': return num(t.day, 2, ' ');
    case 'f': return "000000";
    case 'F': return format_time("%Y-%m-%d", t);
    case 'g': return num(iso_week(t).year % 100);
    case 'G': return fmt::format("{}", iso_week(t).year);
    case 'H': return num(t.hour);
    case 'I': return num(hour12);
    case 'j': return num(day_of_year(t) + 1, 3);
    case 'k': return num(t.hour, 2, ' ');
    case 'l': return num(hour12, 2, ' ');
    case 'm': return num(t.month);
    case 'M': return num(t.minute);
    case 'n': return "\n";
    case 'p': return t.hour < 12 ? "AM" : "PM";
    case 'P': return t.hour < 12 ? "am" : "pm";
    case 'r': return format_time("%I:%M:%S %p", t);
    case 'R': return format_time("%H:%M", t);
    case 'S': return num(t.second);
    case 't': return "\t";
    case 'T':
    case 'X': return format_time("%H:%M:%S", t);
    case 'u': return fmt::format("{}", day == 0 ? 7 : day);
    case 'U': return num((day_of_year(t) + 7 - static_cast<int>(day)) / 7);
    case 'V': return num(iso_week(t).week);
    case 'w': return fmt::format("{}", day);
    case 'W': return num((day_of_year(t) + 7 - (static_cast<int>(day) + 6) % 7) / 7);
    case 'y': return num(t.year % 100);
    case 'Y': return fmt::format("{}", t.year);
    case 'z':
    case 'Z': return "";  // A local time without a zone, as datetime.now() is.
    case '%': return "%";
    default: return pad == '\0' ? fmt::format("%{}", c) : fmt::format("%{}{}", pad, c);
  }
}

}  // namespace

std::string format_time(std::string_view format, const DateTime& t) {
  const bool valid = t.year >= 1 && t.year <= 9999 && t.month >= 1 && t.month <= 12 && t.day >= 1 && t.day <= 31 &&
                     t.hour >= 0 && t.hour < 24 && t.minute >= 0 && t.minute < 60 && t.second >= 0 && t.second < 62;
  if (!valid) fail("strftime_now: the clock's time is none");
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    char pad = '\0';
    if (i + 2 < format.size() && (format[i + 1] == '-' || format[i + 1] == '_' || format[i + 1] == '0'))
      pad = format[++i];
    out += directive(format[++i], pad, t);
  }
  return out;
}

}  // namespace lode::text::jinja
