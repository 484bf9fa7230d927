import { cp, mkdtemp, mkdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { stampChangelog, stampFiles } from '../../scripts/release.ts';
import { ROOT } from '../support/markdown.ts';

const FILES = ['CHANGELOG.md', 'sdk/package.json', 'server/package.json', 'guest/Cargo.toml'];

describe('a release', () => {
  it('stamps the version into every manifest and the changelog', async () => {
    const root = await mkdtemp(join(tmpdir(), 'cay-release-'));
    try {
      for (const file of FILES) {
        await mkdir(dirname(join(root, file)), { recursive: true });
        await cp(join(ROOT, file), join(root, file));
      }
      stampFiles(root, '7.8.9', '2031-01-02');
      const text = (file: string) => readFile(join(root, file), 'utf8');
      const server = JSON.parse(await text('server/package.json')) as {
        version: string;
        dependencies: Record<string, string>;
        devDependencies: Record<string, string>;
      };
      expect(server.version).toBe('7.8.9');
      expect(server.devDependencies['@cay/sdk']).toBe('7.8.9');
      expect(server.dependencies['ws']).not.toBe('7.8.9');
      expect(JSON.parse(await text('sdk/package.json'))).toMatchObject({ version: '7.8.9' });
      expect(await text('guest/Cargo.toml')).toMatch(/^version = "7.8.9"$/m);
      expect(await text('CHANGELOG.md')).toContain('## [Unreleased]\n\n## [7.8.9] - 2031-01-02\n\n### ');
    } finally {
      await rm(root, { recursive: true });
    }
  });

  it('refuses what is not a version, an empty changelog, and a version that was released', () => {
    expect(() => stampFiles(ROOT, 'v1', '2031-01-02')).toThrow('"v1" is not a version');
    expect(() => stampChangelog('## [Unreleased]\n\n## [0.1.0]\n- x\n', '0.2.0', 'd')).toThrow('is empty');
    expect(() => stampChangelog('## [Unreleased]\n- y\n## [0.2.0]\n- x\n', '0.2.0', 'd')).toThrow('already');
  });
});
