/**
 * Commands that install a package of each registry of the tests, or clone from it, and print what is in it.
 * `at` answers name and port of a registry.
 */
export function clientPrograms(
  at: (registry: string) => string,
): Record<'pip' | 'npm' | 'apt' | 'git', string> {
  return {
    pip: `python3 -m pip install -q --disable-pip-version-check --no-input --retries 0 --root-user-action ignore --break-system-packages --target ~/py --index-url https://${at('pypi')}/simple demo-pkg && PYTHONPATH=~/py python3 -c 'import demo_pkg'`,
    npm: `mkdir -p ~/js && cd ~/js && npm install --loglevel=error --no-audit --no-fund --fetch-retries=0 --registry https://${at('npm')} demo-pkg >/dev/null && node -e 'require("demo-pkg")'`,
    // The base template has no database of packages, and its /usr is read-only.
    apt: `mkdir -p /tmp/apt/lists/partial /tmp/apt/cache/archives/partial /var/lib/dpkg/info /var/lib/dpkg/updates && touch /var/lib/dpkg/status && curl -sSfo /tmp/apt/key.asc https://${at('deb')}/key.asc && echo 'deb [signed-by=/tmp/apt/key.asc] https://${at('deb')}/ ./' > /tmp/apt/sources && A='-qq -o APT::Sandbox::User=root -o Dir::Etc::SourceList=/tmp/apt/sources -o Dir::Etc::SourceParts=- -o Dir::State::Lists=/tmp/apt/lists -o Dir::Cache=/tmp/apt/cache -o Acquire::Retries=0' && apt-get $A update >/dev/null && apt-get $A install -y demo-pkg >/dev/null && cat /opt/demo-pkg/hello`,
    git: `rm -rf ~/there && GIT_TERMINAL_PROMPT=0 git clone -q https://${at('git')}/demo.git ~/there && cat ~/there/hello.txt`,
  };
}
