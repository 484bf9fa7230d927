import type { EgressPreset } from '@cay/sdk/protocol';

/**
 * The presets that come with the server. They are data: an operator may replace one or add others by the
 * option `presets`. What a package manager asks for over HTTPS alone is on port 443 alone.
 */
const preset = (name: string, description: string, rules: string[], inPackages = true): EgressPreset => ({
  name,
  description,
  inPackages,
  rules,
});

export const PRESETS: readonly EgressPreset[] = [
  preset('npm', 'JavaScript: npm, Yarn, pnpm, Node.js releases', [
    'registry.npmjs.org:443',
    'registry.yarnpkg.com:443',
    'repo.yarnpkg.com:443',
    'nodejs.org:443',
    'npm.jsr.io:443',
    'jsr.io:443',
  ]),
  preset('pypi', 'Python: PyPI', ['pypi.org:443', 'files.pythonhosted.org:443', 'pypi.python.org:443']),
  preset('conda', 'Conda and conda-forge', [
    'repo.anaconda.com:443',
    'conda.anaconda.org:443',
    'conda.binstar.org:443',
  ]),
  preset('crates', 'Rust: crates.io and toolchains', [
    'crates.io:443',
    'index.crates.io:443',
    'static.crates.io:443',
    'static.rust-lang.org:443',
    'sh.rustup.rs:443',
  ]),
  preset('go', 'Go: module proxy, checksums, toolchains', [
    'proxy.golang.org:443',
    'sum.golang.org:443',
    'index.golang.org:443',
    'golang.org:443',
    'go.dev:443',
    'dl.google.com:443',
  ]),
  preset('maven', 'Java and Kotlin: Maven Central, Gradle', [
    'repo.maven.apache.org:443',
    'repo1.maven.org:443',
    'central.sonatype.com:443',
    'plugins.gradle.org:443',
    'plugins-artifacts.gradle.org:443',
    'services.gradle.org:443',
    'downloads.gradle.org:443',
    'dl.google.com:443',
    'maven.google.com:443',
  ]),
  preset('rubygems', 'Ruby: RubyGems', ['rubygems.org:443', 'index.rubygems.org:443']),
  preset('packagist', 'PHP: Packagist', ['packagist.org:443', 'repo.packagist.org:443']),
  preset('nuget', '.NET: NuGet', ['api.nuget.org:443', 'www.nuget.org:443', 'globalcdn.nuget.org:443']),
  preset('hex', 'Elixir and Erlang: Hex', ['hex.pm:443', 'repo.hex.pm:443', 'builds.hex.pm:443']),
  preset('hackage', 'Haskell: Hackage', ['hackage.haskell.org', 'downloads.haskell.org:443']),
  preset('cpan', 'Perl: CPAN', ['www.cpan.org', 'cpan.metacpan.org:443', 'fastapi.metacpan.org:443']),
  preset('cran', 'R: CRAN', ['cran.r-project.org', 'cloud.r-project.org']),
  preset('pub', 'Dart: pub.dev', ['pub.dev:443', 'pub.dartlang.org:443']),
  preset('cocoapods', 'Swift: CocoaPods', ['cdn.cocoapods.org:443', 'trunk.cocoapods.org:443']),
  preset('debian', 'Debian packages', [
    'deb.debian.org',
    'security.debian.org',
    'ftp.debian.org',
    'snapshot.debian.org',
  ]),
  preset('ubuntu', 'Ubuntu packages', [
    'archive.ubuntu.com',
    'security.ubuntu.com',
    'ports.ubuntu.com',
    '*.archive.ubuntu.com',
    'ppa.launchpadcontent.net',
  ]),
  preset('alpine', 'Alpine packages', ['dl-cdn.alpinelinux.org']),
  preset('fedora', 'Fedora packages', [
    'mirrors.fedoraproject.org',
    'dl.fedoraproject.org',
    'download.fedoraproject.org',
  ]),
  preset('github', 'GitHub: git over HTTPS and SSH, API, downloads', [
    'github.com:22,443',
    'ssh.github.com:443',
    'api.github.com:443',
    'codeload.github.com:443',
    'raw.githubusercontent.com:443',
    'objects.githubusercontent.com:443',
    'release-assets.githubusercontent.com:443',
    'github-releases.githubusercontent.com:443',
    'media.githubusercontent.com:443',
    'github-cloud.githubusercontent.com:443',
    'uploads.github.com:443',
  ]),
  preset('gitlab', 'GitLab.com: git over HTTPS and SSH, API', [
    'gitlab.com:22,443',
    'altssh.gitlab.com:443',
    'registry.gitlab.com:443',
  ]),
  preset('bitbucket', 'Bitbucket: git over HTTPS and SSH, API', [
    'bitbucket.org:22,443',
    'altssh.bitbucket.org:443',
    'api.bitbucket.org:443',
  ]),
  preset('codeberg', 'Codeberg: git over HTTPS and SSH', ['codeberg.org:22,443']),
  preset(
    'docker',
    'Docker Hub',
    [
      'registry-1.docker.io:443',
      'auth.docker.io:443',
      'index.docker.io:443',
      'production.cloudflare.docker.com:443',
    ],
    false,
  ),
  preset(
    'huggingface',
    'Hugging Face: models and datasets',
    ['huggingface.co:443', '*.huggingface.co:443', '*.hf.co:443'],
    false,
  ),
  preset('anthropic', 'Anthropic API', ['api.anthropic.com:443'], false),
  preset('openai', 'OpenAI API', ['api.openai.com:443'], false),
];
