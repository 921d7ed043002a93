#include "rewrite.hpp"

#include <cctype>
#include <map>

namespace hiprtc {
namespace {

constexpr auto npos = std::string::npos;
const std::string kGlobal = "__hipemu_global__";
const std::string kShared = "__hipemu_shared__";
const std::string kSpace = " \t\r\n";

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The text with literals and line markers blanked, of the same length: positions agree, braces and
// words in strings do not count. (Comments are gone after preprocessing.)
std::string blanked(const std::string& text) {
    std::string out = text;
    for (std::size_t i = 0; i < text.size();) {
        const bool line_start = i == 0 || text[i - 1] == '\n';
        if (line_start && text[i] == '#') {
            while (i < text.size() && text[i] != '\n') out[i++] = ' ';
        } else if (text[i] == '"' || (text[i] == '\'' && (i == 0 || !is_word(text[i - 1])))) {
            const char quote = text[i++];
            while (i < text.size() && text[i] != quote && text[i] != '\n') {
                if (text[i] == '\\') out[i++] = ' ';
                if (i < text.size()) out[i++] = ' ';
            }
            ++i;
        } else {
            ++i;
        }
    }
    return out;
}

// The position after the bracket that closes the one at `open`.
std::size_t after_closing(const std::string& text, std::size_t open) {
    const char opening = text[open];
    const char closing = opening == '(' ? ')' : '}';
    int depth = 0;
    for (std::size_t i = open; i < text.size(); ++i) {
        if (text[i] == opening) ++depth;
        if (text[i] == closing && --depth == 0) return i + 1;
    }
    return npos;
}

std::string trimmed(const std::string& text) {
    const auto first = text.find_first_not_of(kSpace);
    if (first == npos) return "";
    return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

bool ends_with_word(const std::string& text, std::size_t end, const std::string& word) {
    while (end > 0 && std::isspace(static_cast<unsigned char>(text[end - 1]))) --end;
    return end >= word.size() && text.compare(end - word.size(), word.size(), word) == 0 &&
           (end == word.size() || !is_word(text[end - word.size() - 1]));
}

// Whether `position` lies outside of every function and class. Braces of namespaces and of
// extern "C" do not count.
bool at_namespace_scope(const std::string& blank, std::size_t position) {
    int inside = 0;
    std::vector<bool> transparent;
    std::size_t statement = 0;
    for (std::size_t i = 0; i < position; ++i) {
        if (blank[i] == '{') {
            const std::string head = trimmed(blank.substr(statement, i - statement));
            const bool open = head.rfind("namespace", 0) == 0 ||
                              head.rfind("inline namespace", 0) == 0 ||
                              (head.rfind("extern", 0) == 0 && head.back() == '"');
            transparent.push_back(open);
            inside += !open;
        } else if (blank[i] == '}' && !transparent.empty()) {
            inside -= !transparent.back();
            transparent.pop_back();
        }
        if (blank[i] == ';' || blank[i] == '{' || blank[i] == '}') statement = i + 1;
    }
    return inside == 0;
}

// extern __shared__ T name[];  ->  a pointer to the launch's dynamic shared memory
std::string with_dynamic_shared(std::string text) {
    for (std::size_t at = 0; (at = text.find(kShared, at)) != npos;) {
        if (!ends_with_word(text, at, "extern")) {
            at += kShared.size();
            continue;
        }
        const std::size_t start = text.rfind("extern", at);
        const std::size_t end = text.find(';', at);
        std::string declaration = text.substr(at + kShared.size(), end - at - kShared.size());
        for (const char* decoration : {"__attribute__", "alignas"}) {
            for (auto found = declaration.find(decoration); found != npos;
                 found = declaration.find(decoration)) {
                const auto after = after_closing(declaration, declaration.find('(', found));
                declaration.erase(found, after - found);
            }
        }
        const auto bracket = declaration.rfind('[');
        if (bracket == npos) {
            at += kShared.size();
            continue;
        }
        declaration = trimmed(declaration.substr(0, bracket));
        std::size_t name = declaration.size();
        while (name > 0 && is_word(declaration[name - 1])) --name;
        const std::string type = trimmed(declaration.substr(0, name));
        const std::string variable = declaration.substr(name);
        std::string plain;
        if (at_namespace_scope(blanked(text), start)) {
            plain = "static hipemu_dynamic_shared<" + type + "> " + variable;
        } else {
            plain = type + "* " + variable + " = (" + type + "*)hipemu_current->dynamic_shared";
        }
        text.replace(start, end - start, plain);
        at = start + plain.size();
    }
    return text;
}

struct Kernel {
    std::size_t end;  // after its body
    std::string name;
    std::string parameters;
};

// The kernel definition whose marker ends at `at`; its end is npos for a declaration.
Kernel parse_kernel(const std::string& blank, std::size_t at) {
    Kernel kernel{npos, "", ""};
    std::size_t i = at;
    for (;;) {
        while (i < blank.size() && !is_word(blank[i]) && blank[i] != '(') ++i;
        if (i >= blank.size() || blank[i] == '(') return kernel;
        std::size_t end = i;
        while (end < blank.size() && is_word(blank[end])) ++end;
        const std::string word = blank.substr(i, end - i);
        const std::size_t next = blank.find_first_not_of(kSpace, end);
        if (next == npos) return kernel;
        i = end;
        if (blank[next] != '(') continue;
        if (word == "__attribute__" || word == "alignas") {
            i = after_closing(blank, next);
            if (i == npos) return kernel;
            continue;
        }
        kernel.name = word;
        i = after_closing(blank, next);
        if (i == npos) return kernel;
        kernel.parameters = blank.substr(next, i - next);
        break;
    }
    for (;;) {
        i = blank.find_first_not_of(kSpace, i);
        if (i == npos) return kernel;
        if (blank.compare(i, 13, "__attribute__") == 0) {
            i = after_closing(blank, blank.find('(', i));
        } else if (blank.compare(i, 8, "noexcept") == 0) {
            i += 8;
        } else {
            break;
        }
    }
    if (blank[i] == '{') kernel.end = after_closing(blank, i);
    return kernel;
}

bool is_template(const std::string& blank, std::size_t marker) {
    std::size_t start = marker == 0 ? npos : blank.find_last_of(";{}", marker - 1);
    start = start == npos ? 0 : start + 1;
    const auto word = blank.find("template", start);
    if (word == npos || word >= marker) return false;
    const auto open = blank.find('<', word);
    const auto first = blank.find_first_not_of(kSpace, open + 1);
    return first != npos && blank[first] != '>';  // template<> is a specialisation
}

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + "\"";
}

class Registrations {
  public:
    std::string add(const std::string& name, const std::string& type, const std::string& value) {
        const std::string id = std::to_string(next_++);
        return " static hipemu_kernel hipemu_kernel_" + id + " = hipemu_registration<" + type +
               ", " + value + ">::make(" + quoted(name) +
               "); static __attribute__((used, section(\"hipemu_kernels\"))) hipemu_kernel* "
               "hipemu_pointer_" +
               id + " = &hipemu_kernel_" + id + "; ";
    }

  private:
    int next_ = 0;
};

void replace_all(std::string& text, const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != npos; at += to.size()) {
        text.replace(at, from.size(), to);
    }
}

// A block runs on one host thread, so what its threads share is local to that thread.
std::string with_static_shared(std::string text) {
    const std::string storage = "thread_local __attribute__((aligned(16)))";
    for (std::size_t at = 0; (at = text.find(kShared, at)) != npos;) {
        const bool is_static = ends_with_word(text, at, "static");
        text.replace(at, kShared.size(), is_static ? storage : "static " + storage);
    }
    return text;
}

}  // namespace

std::string rewrite(const std::string& preprocessed, const std::vector<std::string>& expressions,
                    const std::string& build) {
    const std::string text = with_dynamic_shared(preprocessed);
    const std::string blank = blanked(text);
    std::vector<Kernel> kernels;
    std::map<std::string, int> overloads;
    for (std::size_t at = 0; (at = blank.find(kGlobal, at)) != npos;) {
        const std::size_t marker = at;
        at += kGlobal.size();
        if (is_template(blank, marker)) continue;
        Kernel kernel = parse_kernel(blank, at);
        if (kernel.end == npos) continue;
        ++overloads[kernel.name];
        at = kernel.end;
        kernels.push_back(std::move(kernel));
    }
    Registrations registrations;
    std::string out;
    std::size_t done = 0;
    for (const Kernel& kernel : kernels) {
        out.append(text, done, kernel.end - done);
        done = kernel.end;
        const std::string type = overloads[kernel.name] == 1 ? "decltype(&" + kernel.name + ")"
                                                             : "void (*)" + kernel.parameters;
        out += registrations.add(kernel.name, type, "&" + kernel.name);
    }
    out.append(text, done, npos);
    out += "\n# 1 \"<name expressions>\"\n";
    for (const std::string& expression : expressions) {
        std::string value = trimmed(expression);
        if (!value.empty() && value[0] == '&') value.erase(0, 1);
        out += registrations.add(expression, "decltype(&" + value + ")", "&" + value) + "\n";
    }
    replace_all(out, kGlobal, "__attribute__((visibility(\"default\")))");
    out = with_static_shared(std::move(out));
    out +=
        "extern \"C\" __attribute__((visibility(\"default\"))) const hipemu_module "
        "hipemu_module_table = {__AMDGCN_WAVEFRONT_SIZE__, __start_hipemu_kernels, "
        "__stop_hipemu_kernels};\n";
    replace_all(out, "__AMDGCN_WAVEFRONT_SIZE__", "(unsigned)warpSize");
    // CuPy tells compilers apart by the bytes that they produce.
    out +=
        "extern \"C\" __attribute__((used)) const char hipemu_build[] = " + quoted(build) + ";\n";
    return out;
}

}  // namespace hiprtc
