#include "text/grammar/formats.h"

#include <algorithm>
#include <array>
#include <string>

namespace lode::text::grammar {
namespace {

// Days that the calendar has; February 29 in years divisible by 4, but by 100 only if by 400. Year 0000 is left out:
// many calendars have none.
#define LODE_LEAP "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define LODE_YEAR "(?:000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})"
#define LODE_DATE                                                                                      \
  "(?:" LODE_YEAR                                                                                      \
  "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1" \
  "\\d|2[0-8]))|" LODE_LEAP "-02-29)"
#define LODE_TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define LODE_OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define LODE_IPV4 LODE_OCTET "(?:\\." LODE_OCTET "){3}"
#define LODE_H16 "[0-9a-fA-F]{1,4}"
// A label of letters, digits and inner hyphens, at most 62 long, written so that one reading fits each prefix.
#define LODE_LABEL "[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]{1,20}){0,2}"
// The last label is of letters, so that no address of digits looks like a name. Three labels stay under 253.
#define LODE_HOST "(?:" LODE_LABEL "\\.){0,2}[A-Za-z]{1,24}"
#define LODE_PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"

struct Format {
  std::string_view name, regex;
};
constexpr Format kFormats[] = {
    {"date", LODE_DATE},
    {"time", LODE_TIME},
    {"date-time", LODE_DATE "T" LODE_TIME},
    {"duration",
     "P(?:\\d{1,4}W|(?:\\d{1,4}Y(?:\\d{1,4}M(?:\\d{1,4}D)?)?|\\d{1,4}M(?:\\d{1,4}D)?|\\d{1,4}D)(?:T(?:\\d{1,4}H(?:"
     "\\d{1,4}M(?:\\d{1,4}S)?)?|\\d{1,4}M(?:\\d{1,4}S)?|\\d{1,4}S))?|T(?:\\d{1,4}H(?:\\d{1,4}M(?:\\d{1,4}S)?)?|"
     "\\d{1,4}M(?:\\d{1,4}S)?|\\d{1,4}S))"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"email", "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,30}(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,30})?@(?:" LODE_LABEL
              "\\.){1,2}[A-Za-z]{2,24}"},
    {"hostname", LODE_HOST},
    {"ipv4", LODE_IPV4},
    {"ipv6", "(?:" LODE_H16 ":){7}" LODE_H16 "|(?:" LODE_H16 ":){1,7}:|(?:" LODE_H16 ":){6}:" LODE_H16 "|(?:" LODE_H16
             ":){5}(?::" LODE_H16 "){1,2}|(?:" LODE_H16 ":){4}(?::" LODE_H16 "){1,3}|(?:" LODE_H16 ":){3}(?::" LODE_H16
             "){1,4}|(?:" LODE_H16 ":){2}(?::" LODE_H16 "){1,5}|" LODE_H16 ":(?::" LODE_H16 "){1,6}|:(?::" LODE_H16
             "){1,7}|::|(?:" LODE_H16 ":){6}" LODE_IPV4 "|::(?:ffff:)?" LODE_IPV4},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]{0,15}://" LODE_HOST "(?::[1-9]\\d{0,4})?(?:/" LODE_PCHAR "*)*(?:\\?(?:" LODE_PCHAR
            "|[/?])*)?(?:#(?:" LODE_PCHAR "|[/?])*)?"},
};
constexpr std::string_view kRefused[] = {"idn-email",     "idn-hostname",          "iri",
                                         "iri-reference", "uri-reference",         "uri-template",
                                         "json-pointer",  "relative-json-pointer", "regex"};

}  // namespace

FormatKind format_kind(std::string_view name) {
  if (!format_regex(name).empty()) return FormatKind::enforced;
  const bool refused = std::find(std::begin(kRefused), std::end(kRefused), name) != std::end(kRefused);
  return refused ? FormatKind::refused : FormatKind::unknown;
}

std::string_view format_regex(std::string_view name) {
  for (const Format& f : kFormats) {
    if (f.name == name) return f.regex;
  }
  return {};
}

}  // namespace lode::text::grammar
