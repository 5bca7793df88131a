// Several models behind one server: who runs when, what happens to those who wait, and that no engine goes while it is
// used.
#include "serve/model_host.h"

#include <filesystem>
#include <fstream>

#include "serve/test_fixture.h"

namespace lode::serve::test {
namespace {

using Text = FakeEngine::Script::Text;

class ModelHostTest : public ServeTest {
 protected:
  ~ModelHostTest() override {
    if (host) host->stop(0);
    server.reset();
  }
  void start_host(std::vector<std::string> names, std::size_t waiting_max = 256) {
    start_without_engine();
    std::vector<ModelEntry> entries;
    for (auto& name : names) entries.push_back({name, "/models/" + name + ".gguf"});
    host =
        std::make_unique<ModelHost>(std::move(entries), [this](const ModelEntry& e) { return load(e); }, waiting_max);
    server->set_models(*host);
  }
  Result<LoadedModel> load(const ModelEntry& entry) {
    ++loads;
    if (entry.name == "bad") return Status::corrupt("not a model");
    EXPECT_EQ(alive.load(), 0) << "two models at once";
    ++alive;
    FakeEngine::Script script = this->script;
    script.name = entry.name;
    script.reply = "I am " + entry.name;
    auto engine = std::make_unique<Counted>(script, alive);
    auto chat = load_chat_template(*engine, "");
    return LoadedModel{std::move(engine), std::move(chat)};
  }
  std::string text_of(const std::string& model) {
    const Reply reply = complete(R"({"model":")" + model + R"(","prompt":"p"})");
    return reply.status == 200 ? reply.json()["choices"][0]["text"].get<std::string>() : reply.body;
  }

  struct Counted : FakeEngine {
    Counted(Script s, std::atomic<int>& n) : FakeEngine(std::move(s)), count(n) {}
    ~Counted() override { --count; }
    std::atomic<int>& count;
  };
  std::atomic<int> alive{0}, loads{0};
  FakeEngine::Script script;
  std::unique_ptr<ModelHost> host;
};

TEST_F(ModelHostTest, ARequestsModelAnswersAndOneIsThereAtATime) {
  start_host({"a", "b"});
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(get("/v1/models").json()["data"][0]["status"]["value"], "unloaded");
  EXPECT_EQ(loads, 0);
  for (const char* model : {"a", "b", "b", "a"}) EXPECT_EQ(text_of(model), std::string("I am ") + model);
  EXPECT_EQ(loads, 3);
  EXPECT_EQ(text_of("a.gguf"), "I am a") << "the file's name is a name too";
  EXPECT_EQ(complete(R"({"prompt":"p"})").json()["model"], "a") << "without a name: the one that is there";
  EXPECT_EQ(chat(R"({"messages":[{"role":"user","content":"x"}],"model":"b"})").json()["model"], "b");
  EXPECT_EQ(get("/props?model=a").json()["model_alias"], "a");
  EXPECT_EQ(loads, 5);
  const Json list = get("/v1/models").json()["data"];
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["status"]["value"], "loaded");
  EXPECT_EQ(list[1]["status"]["value"], "unloaded");
  EXPECT_EQ(list[1]["max_model_len"], 1000) << "known since it was there";
  EXPECT_EQ(get("/v1/models/b").json()["id"], "b");
}

TEST_F(ModelHostTest, UnknownAndBrokenModelsAreClearErrors) {
  start_host({"a", "bad"});
  const Reply unknown = complete(R"({"model":"c","prompt":"p"})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.json()["error"]["code"], "model_not_found");
  EXPECT_EQ(unknown.json()["error"]["param"], "model");
  EXPECT_EQ(get("/v1/models/c").status, 404);
  EXPECT_EQ(loads, 0);
  const Reply bad = complete(R"({"model":"bad","prompt":"p"})");
  EXPECT_EQ(bad.status, 503);
  EXPECT_EQ(bad.json()["error"]["code"], "model_not_loaded");
  EXPECT_TRUE(bad.headers.contains("retry-after"));
  EXPECT_EQ(text_of("a"), "I am a");
  Client form(server->port());
  form.post("/v1/completions", R"({"model":"bad","prompt":"p"})", "Content-Type: text/plain\r\n");
  EXPECT_EQ(form.read().status, 415);
  EXPECT_EQ(loads, 2) << "a web page's form had a model loaded";
}

TEST_F(ModelHostTest, ASwapWaitsForWhatRunsAndThenServesAllThatWait) {
  script.step = std::chrono::milliseconds(20);
  start_host({"a", "b"});
  Client running(server->port());
  running.post("/v1/completions", R"({"model":"a","prompt":"p","stream":true})");
  ASSERT_TRUE(running.read_head().status == 200);
  std::vector<std::unique_ptr<Client>> clients;
  for (const char* model : {"b", "a", "b"}) {
    clients.push_back(std::make_unique<Client>(server->port()));
    clients.back()->post("/v1/completions", R"({"prompt":"p","model":")" + std::string(model) + "\"}");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::string streamed;
  bool whole = false;
  while (auto chunk = running.chunk(&whole)) streamed += *chunk;
  EXPECT_TRUE(whole && parse_events(streamed).done) << "the running answer was cut";
  EXPECT_EQ(parse_events(streamed).text(), "I am a");
  const char* said[] = {"I am b", "I am a", "I am b"};
  for (std::size_t i = 0; i < clients.size(); ++i)
    EXPECT_EQ(clients[i]->read().json()["choices"][0]["text"], said[i]) << i;
  EXPECT_EQ(loads, 3) << "a, then b for both, then a";
}

TEST_F(ModelHostTest, WhoLeavesWhileWaitingHoldsUpNobody) {
  script.text = Text::endless;
  start_host({"a", "b"});
  Client running(server->port()), leaves(server->port()), same(server->port());
  running.post("/v1/completions", R"({"model":"a","prompt":"p","stream":true})");
  ASSERT_EQ(running.read_head().status, 200);
  leaves.post("/v1/completions", R"({"model":"b","prompt":"p"})");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  same.post("/v1/completions", R"({"model":"a","prompt":"p","max_tokens":3})");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  leaves.close();  // `same` waited behind it for a swap that nobody wants any more.
  EXPECT_EQ(same.read().status, 200);
  EXPECT_EQ(loads, 1);
  running.close();
  EXPECT_EQ(complete(R"({"model":"b","prompt":"p","max_tokens":1})").status, 200);
}

TEST_F(ModelHostTest, TooManyThatWaitAndThoseLeftAtTheEndAreRefused) {
  script.text = Text::endless;
  start_host({"a", "b"}, 1);
  Client running(server->port()), waits(server->port());
  running.post("/v1/completions", R"({"model":"a","prompt":"p","stream":true})");
  ASSERT_EQ(running.read_head().status, 200);
  waits.post("/v1/completions", R"({"model":"b","prompt":"p"})");
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const Reply refused = complete(R"({"model":"b","prompt":"p"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.json()["error"]["code"], "queue_full");
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  server->stop_accepting();
  host->stop(20);
  EXPECT_EQ(waits.read().json()["error"]["code"], "stopping");
  server->finish(std::chrono::milliseconds(500));
}

// Swaps under load: every answer is its model's, and no engine goes while somebody uses it.
TEST_F(ModelHostTest, ManyClientsAndThreeModels) {
  script.step = std::chrono::microseconds(50);
  start_host({"a", "b", "c"});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const std::string model(1, static_cast<char>('a' + (t + i * 7) % 3));
        if (i % 6 == 5) {  // Leaves at some moment.
          Client client(server->port());
          client.post("/v1/completions", R"({"prompt":"p","stream":true,"model":")" + model + "\"}");
          std::this_thread::sleep_for(std::chrono::microseconds(300 * i));
          client.abort();
        } else if (text_of(model) != "I am " + model) {
          ++wrong;
        }
        if (i % 5 == 0) get("/metrics");
        if (i % 5 == 1) get("/v1/models");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(alive, 1);
}

TEST(FindModelsTest, FoldersAndSplitFiles) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / "lode-find-models";
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const char* name : {"b.gguf", "a.gguf", "big-00001-of-00002.gguf", "big-00002-of-00002.gguf", "notes.txt"})
    std::ofstream(folder / name) << "x";
  const auto found = find_models({folder.string()});
  ASSERT_TRUE(found.ok());
  std::string names;
  for (const ModelEntry& entry : *found) names += entry.name + " ";
  EXPECT_EQ(names, "a b big ");
  EXPECT_EQ((*found)[2].file.filename(), "big-00001-of-00002.gguf");
  EXPECT_FALSE(find_models({folder.string(), (folder / "a.gguf").string()}).ok()) << "two of one name";
  fs::remove_all(folder);
  fs::create_directories(folder);
  EXPECT_EQ(find_models({folder.string()}).status().code(), Code::not_found);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace lode::serve::test
