import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { run } from '../../server/src/lib/run.ts';
import { ROOT } from '../support/markdown.ts';

const ANALYZE = '/usr/bin/systemd-analyze';

describe('packaging/cay.service', () => {
  it('is started again however often the server fails in a row', async () => {
    const unit = await readFile(join(ROOT, 'packaging/cay.service'), 'utf8');
    const [, head = '', service = ''] = /\[Unit\]([^]*)\[Service\]([^]*)\[Install\]/.exec(unit) ?? [];
    expect(head).toMatch(/^StartLimitIntervalSec=0$/m);
    expect(service).toMatch(/^Restart=(?:on-failure|always)$/m);
    expect(service).toMatch(/^RestartSec=1$/m);
  });

  it('is a unit that systemd understands', async ({ skip }) => {
    if (!existsSync(ANALYZE)) skip(`there is no ${ANALYZE}`);
    const unit = await readFile(join(ROOT, 'packaging/cay.service'), 'utf8');
    const dir = await mkdtemp(join(tmpdir(), 'cay-unit-'));
    try {
      // Checked with the launcher where it is here, because systemd looks whether it can be executed.
      const file = join(dir, 'cay.service');
      await writeFile(file, unit.replaceAll('/opt/cay/', `${ROOT}/`));
      const { stdout, stderr } = await run(ANALYZE, ['verify', '--man=no', file]);
      expect(`${stdout}${stderr}`.split('\n').filter((line) => line.includes('cay.service'))).toEqual([]);
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  });
});
