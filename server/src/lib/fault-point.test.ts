import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { armFaultPoints, faultPoint } from './fault-point.ts';

describe('fault points', () => {
  afterEach(() => armFaultPoints());

  it('do nothing unless they are armed', () => {
    expect(faultPoint('a.b')).toBeUndefined();
  });

  it('reject where an error is asked for, and nowhere else', async () => {
    armFaultPoints({ 'a.b': 'error' });
    await expect(faultPoint('a.b')).rejects.toThrow('"a.b"');
    await expect(faultPoint('a.c')).resolves.toBeUndefined();
  });

  it('take a name with a star for all that begin so', async () => {
    armFaultPoints({ 'a.*': 'error' });
    await expect(faultPoint('a.c')).rejects.toThrow('"a.c"');
    await expect(faultPoint('b.c')).resolves.toBeUndefined();
  });

  it('call a function that was given', async () => {
    const seen: string[] = [];
    armFaultPoints({ 'a.*': (name) => void seen.push(name) });
    await faultPoint('a.b');
    expect(seen).toEqual(['a.b']);
  });

  it('never strike with probability 0', async () => {
    armFaultPoints({ 'a.b': 'error@0' });
    for (let round = 0; round < 100; round++) await faultPoint('a.b');
    expect(await faultPoint('a.b')).toBeUndefined();
  });

  it('refuse an unknown fault', () => {
    expect(() => armFaultPoints({ 'a.b': 'explode' })).toThrow('Not a fault');
    expect(() => armFaultPoints({ 'a.b': 'kill@2' })).toThrow('Not a fault');
  });

  it('end the process when the environment says so', () => {
    const script = `import { faultPoint } from ${JSON.stringify(join(import.meta.dirname, 'fault-point.ts'))}; await faultPoint('a.b'); console.log('alive');`;
    const env = { ...process.env, CAY_FAULT_POINTS: '{"a.b":"kill"}' };
    const { signal, stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
      env,
      encoding: 'utf8',
    });
    expect({ signal, stdout }).toEqual({ signal: 'SIGKILL', stdout: '' });
  });

  it('strike as a file says at that moment, when the environment names one', () => {
    const dir = mkdtempSync(join(tmpdir(), 'cay-fault-point-'));
    const file = join(dir, 'faults');
    writeFileSync(file, '');
    const script = `import { writeFileSync } from 'node:fs';
      import { faultPoint } from ${JSON.stringify(join(import.meta.dirname, 'fault-point.ts'))};
      await faultPoint('a.b');
      console.log('alive');
      writeFileSync(${JSON.stringify(file)}, '{"a.b":"kill"}');
      await faultPoint('a.b');
      console.log('still alive');`;
    const env = { ...process.env, CAY_FAULT_POINTS: `@${file}` };
    const { signal, stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
      env,
      encoding: 'utf8',
    });
    rmSync(dir, { recursive: true });
    expect({ signal, stdout }).toEqual({ signal: 'SIGKILL', stdout: 'alive\n' });
  });
});
