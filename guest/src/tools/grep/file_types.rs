//! Names of file types, and the endings that they stand for.

/// The globs of a type, or `None` if it is not known.
pub fn globs(name: &str) -> Option<Vec<String>> {
    let endings = TYPES.iter().find(|(known, _)| *known == name)?.1;
    let glob = |ending: &str| match ending.strip_prefix('=') {
        Some(name) => name.to_owned(),
        None => format!("*.{ending}"),
    };
    Some(endings.split(' ').map(glob).collect())
}

/// All names, for messages.
pub fn names() -> String {
    TYPES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Endings; with `=` a whole name.
const TYPES: &[(&str, &str)] = &[
    ("c", "c h =*.h.in"),
    ("cmake", "cmake =CMakeLists.txt"),
    ("clojure", "clj cljc cljs cljx"),
    ("cpp", "cpp cc cxx c++ hpp hh hxx h h++ inl =*.h.in =*.hh.in"),
    ("cs", "cs"),
    ("css", "css scss"),
    ("csv", "csv"),
    ("dart", "dart"),
    ("docker", "=*Dockerfile*"),
    ("elixir", "ex eex exs heex leex"),
    ("erlang", "erl hrl"),
    ("go", "go"),
    ("graphql", "graphql graphqls"),
    ("haskell", "hs lhs"),
    ("html", "htm html ejs"),
    ("java", "java jsp jspx properties"),
    ("js", "js jsx mjs cjs vue"),
    ("json", "json =composer.lock"),
    ("kotlin", "kt kts"),
    ("less", "less"),
    ("log", "log"),
    ("lua", "lua"),
    ("make", "mk mak =[Mm]akefile =[Gg][Nn][Uu]makefile"),
    ("markdown", "markdown md mdx mdown mkdn"),
    ("md", "markdown md mdx mdown mkdn"),
    ("perl", "pl pm PL"),
    ("php", "php php3 php4 php5 phtml"),
    ("proto", "proto"),
    ("ps", "ps1 psd1 psm1"),
    ("py", "py pyi"),
    ("python", "py pyi"),
    ("r", "R r Rmd Rnw"),
    ("ruby", "rb gemspec ruby rbw =Gemfile =Rakefile =config.ru"),
    ("rust", "rs"),
    ("scala", "scala sbt"),
    ("sh", "bash sh zsh ksh =.bashrc =.bash_profile =.profile =.zshrc"),
    ("sql", "sql psql"),
    ("svelte", "svelte"),
    ("swift", "swift"),
    ("tex", "tex ltx cls sty bib"),
    ("tf", "tf tfvars"),
    ("toml", "toml =Cargo.lock"),
    ("ts", "ts tsx cts mts"),
    ("txt", "txt"),
    ("typescript", "ts tsx cts mts"),
    ("vue", "vue"),
    ("xml", "xml xsd xsl xslt svg"),
    ("yaml", "yaml yml"),
    ("zig", "zig"),
];
