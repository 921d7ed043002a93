// Temporary folders, files and the host compiler's process.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hiprtc {

class TemporaryFolder {
  public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const std::string& path() const { return path_; }  // empty: it could not be made

  private:
    std::string path_;
};

std::optional<std::string> read_file(const std::string& path);
bool write_file(const std::string& path, const std::string& text);

// Runs a program, standard output and error appended to the file `log`, in `folder` unless that is
// empty. Its exit status; 127 when it could not start.
int run_process(const std::vector<std::string>& command, const std::string& log,
                const std::string& folder);

// HIPFILE_ARRAYS_EMULATOR_CXX, else the first of g++, c++, clang++ on the PATH; empty: none.
std::string find_compiler();

}  // namespace hiprtc
