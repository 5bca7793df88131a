#include "cli/audit.h"

#include <gtest/gtest.h>

#include <limits>

namespace lode::cli {
namespace {

AuditStep step(std::string token, std::vector<std::pair<std::string, double>> top) {
  return {.token = token, .text = token, .top = std::move(top)};
}
AuditAnswer answer(std::vector<AuditStep> steps) {
  AuditAnswer a;
  for (const auto& s : steps) a.text += s.text;
  a.steps = std::move(steps);
  return a;
}
const AuditAnswer kCold = answer({step("a", {{"a", -0.5}, {"b", -1.5}}), step("c", {{"c", -0.7}, {"d", -0.75}})});

TEST(AuditVerdict, EqualAnswersAreBitIdentical) {
  const auto d = compare_answers(kCold, kCold);
  EXPECT_TRUE(d.identical);
  EXPECT_EQ(d.largest, 0);
  EXPECT_EQ(judge(d, 0.05), Verdict::identical);
}

TEST(AuditVerdict, OneBitOfALogProbabilityIsSeen) {
  AuditAnswer other = kCold;
  other.steps[1].top[1].second = std::nextafter(-0.75, 0);
  EXPECT_EQ(judge(compare_answers(kCold, other), 0.05), Verdict::tolerance);
  other = kCold;
  other.text += " ";  // The same tokens, other text.
  EXPECT_EQ(judge(compare_answers(kCold, other), 0.05), Verdict::tolerance);
}

TEST(AuditVerdict, TheFirstTokensLikeliestMayDifferByWhatIsAllowed) {
  AuditAnswer other = kCold;
  other.steps[0].top[1].second = -1.5 - 0.06;
  auto d = compare_answers(kCold, other);
  EXPECT_NEAR(d.first_token, 0.06, 1e-12);
  EXPECT_EQ(judge(d, 0.05), Verdict::wrong);
  EXPECT_EQ(judge(d, allowed_difference(0.007)), Verdict::tolerance);  // 10 x 0.007 = 0.07
  EXPECT_EQ(allowed_difference(0.001), 0.05);
  // Later tokens' differences alone are no error.
  other = kCold;
  other.steps[1].top[0].second = -9;
  EXPECT_EQ(judge(compare_answers(kCold, other), 0.05), Verdict::tolerance);
}

TEST(AuditVerdict, AFlipIsWrongWhereColdWasSure) {
  AuditAnswer other = kCold;
  other.steps[1] = step("d", {{"d", -0.7}, {"c", -0.75}});  // Cold leads by 0.05 there.
  auto d = compare_answers(kCold, other);
  ASSERT_TRUE(d.flip);
  EXPECT_EQ(*d.flip, 1u);
  EXPECT_NEAR(d.lead, 0.05, 1e-12);
  EXPECT_EQ(judge(d, 0.05), Verdict::tolerance);
  EXPECT_EQ(judge(d, 0.02), Verdict::wrong);
}

TEST(AuditVerdict, ATokenThatOneListLacksCountsFromTheOthersLast) {
  AuditAnswer other = kCold;
  other.steps[0].top = {{"a", -0.5}, {"x", -1.2}};  // b, at -1.5, is below -1.2; x, at -1.2, was at most at -1.5.
  EXPECT_NEAR(compare_answers(kCold, other).first_token, 0.3, 1e-12);
}

TEST(AuditVerdict, NotANumberIsWrongAndAnEarlyEndIsAFlip) {
  AuditAnswer other = kCold;
  other.steps[0].top[0].second = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(judge(compare_answers(kCold, other), 0.05), Verdict::wrong);
  other = kCold;
  other.steps.pop_back();
  const auto d = compare_answers(kCold, other);
  ASSERT_TRUE(d.flip);
  EXPECT_EQ(*d.flip, 1u);
}

TEST(AuditReport, TableAndExitCodeFollowTheVerdicts) {
  AuditReport report{.target = "model", .prefix = "100 tokens", .tokens = 2};
  AuditArm cold{.kv = "f16", .name = "cold"}, warm{.kv = "f16", .name = "warm"};
  cold.questions.push_back({.answer = kCold});
  AuditAnswer other = kCold;
  other.steps[0].top[0].second = -3;
  warm.questions.push_back({.answer = other, .difference = compare_answers(kCold, other), .verdict = Verdict::wrong});
  report.references.emplace_back(cold, 0.05);
  report.arms.push_back(warm);
  EXPECT_EQ(exit_code(report), kAuditWrong);
  const std::string table = to_table(report);
  EXPECT_NE(table.find("WRONG: f16 warm, question 1: the first token's likeliest differ by 2.5 (allowed 0.05)"),
            std::string::npos)
      << table;
  report.arms[0].questions[0].verdict = Verdict::tolerance;
  EXPECT_EQ(exit_code(report), kAuditClean);
  report.arms[0].failure = "gone";
  EXPECT_EQ(exit_code(report), kAuditFailed);
}

}  // namespace
}  // namespace lode::cli
