import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

/**
 * A flat apt repository with a signed index, by path, with the key at `/key.asc`, and a package that needs
 * nothing.
 */
export function makeDebian(dir: string): Map<string, Buffer> {
  const root = join(dir, 'deb-package');
  mkdirSync(join(root, 'DEBIAN'), { recursive: true });
  mkdirSync(join(root, 'opt', 'demo-pkg'), { recursive: true });
  const control =
    'Package: demo-pkg\nVersion: 1.0.0\nArchitecture: all\nMaintainer: Test <test@example.org>\nDescription: A package\n';
  writeFileSync(join(root, 'DEBIAN', 'control'), control);
  writeFileSync(join(root, 'opt', 'demo-pkg', 'hello'), 'the package of apt\n');
  const path = join(dir, 'demo-pkg.deb');
  execFileSync('dpkg-deb', ['--root-owner-group', '-Zgzip', '-b', root, path], { stdio: 'ignore' });
  const deb = readFileSync(path);
  const index = Buffer.from(
    `${control}Filename: ./demo-pkg.deb\nSize: ${deb.length}\nSHA256: ${sha256(deb)}\n`,
  );
  const release = `Origin: test\nSuite: stable\nCodename: stable\nDate: ${new Date().toUTCString().replace('GMT', 'UTC')}\nSHA256:\n ${sha256(index)} ${index.length} Packages\n`;
  const { key, signed } = sign(dir, release);
  const files = { 'demo-pkg.deb': deb, Packages: index, InRelease: signed, 'key.asc': key };
  return new Map(
    Object.entries(files).flatMap(([name, bytes]) => [
      [`/${name}`, bytes],
      [`/./${name}`, bytes],
    ]),
  );
}

function sign(dir: string, text: string): { key: Buffer; signed: Buffer } {
  const home = join(dir, 'gpg');
  mkdirSync(home, { mode: 0o700 });
  const gpg = (args: string[], input = '') =>
    execFileSync('gpg', ['--homedir', home, '--batch', '--quiet', ...args], {
      input,
      stdio: ['pipe', 'pipe', 'ignore'],
    });
  gpg(['--passphrase', '', '--quick-generate-key', 'Test <test@example.org>', 'ed25519', 'sign', 'never']);
  const made = { key: gpg(['--armor', '--export']), signed: gpg(['--clearsign'], text) };
  execFileSync('gpgconf', ['--homedir', home, '--kill', 'gpg-agent'], { stdio: 'ignore' });
  return made;
}
