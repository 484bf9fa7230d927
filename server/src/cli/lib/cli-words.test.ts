import { CayError, type CayErrorOptions, type ErrorCode } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { inCliWords } from './cli-words.ts';

const words = (code: ErrorCode, details: Record<string, unknown>, more: CayErrorOptions = {}) => {
  const { message, hint } = inCliWords(new CayError(code, 'As the API has it', { details, ...more }));
  return { message, hint };
};
const issue = (path: string, more: object = {}) => ({ issues: [{ path, message: 'must be nice', ...more }] });

describe('inCliWords()', () => {
  it.each([
    [
      issue('limits.memoryBytes', { code: 'too_small', minimum: 16_777_216 }),
      '--memory must be at least 16m',
    ],
    [issue('limits.cpus', { code: 'too_big', maximum: 512 }), '--cpus must be at most 512'],
    [issue('timeoutMs', { code: 'too_big', maximum: 31_536_000_000 }), '--timeout must be at most 365d'],
    [issue('name', { code: 'invalid_format' }), '--name is not valid: must be nice'],
    [issue('labels.some-key', { code: 'too_big', maximum: 3 }), '--label is not valid: must be nice'],
  ])('names the flag of a field: %j', (details, message) => {
    expect(words('invalid_argument', details).message).toBe(message);
  });

  it('names fields that have no flag, without where the API has them', () => {
    expect(words('invalid_argument', issue('something.else')).message).toBe(
      'The something.else is not valid: must be nice',
    );
  });

  it('names no flag that the verb does not have', () => {
    const error = new CayError('invalid_argument', 'As the API has it', { details: issue('name') });
    expect(inCliWords(error, ['--size']).message).toBe('The name is not valid: must be nice');
    expect(inCliWords(error, ['--name']).message).toBe('--name is not valid: must be nice');
  });

  it('writes limits and quotas as sizes', () => {
    expect(
      words('invalid_argument', { limit: 'memoryBytes', asked: 4 * 1024 ** 3, maximum: 2 * 1024 ** 3 }),
    ).toEqual({
      message: "--memory 4g is above the operator's maximum of 2g",
      hint: 'ask for at most 2g; the operator sets the maximum with --max-limit of "cay up"',
    });
    // The memory of a machine is no round number.
    const odd = { limit: 'memoryBytes', asked: 64 * 1024 ** 3, maximum: 24_684_084 * 1024 };
    expect(words('invalid_argument', odd).hint).toContain('ask for at most 24105m;');
    const quota = { quota: 'memoryBytes', limit: 3 * 1024 ** 3, used: 2 * 1024 ** 3, asked: 2 * 1024 ** 3 };
    expect(words('resource_exhausted', quota).message).toBe(
      "The project's quota for memory is 3.0 GiB: 2.0 GiB in use, 2.0 GiB more asked for",
    );
  });

  it('names the flag of a limit that a platform cannot enforce', () => {
    const message = 'Docker cannot enforce "limits.diskBytes": no quotas';
    const hint = 'set "limits.diskBytes" to null';
    const error = new CayError('unsupported', message, { details: { limit: 'diskBytes' }, hint });
    expect(inCliWords(error)).toMatchObject({
      message: 'Docker cannot enforce --disk: no quotas',
      hint: 'leave out --disk',
    });
  });

  it('says how to make a volume that a mount names', () => {
    expect(words('not_found', { what: 'volume', volume: 'data' }).hint).toContain('cay volume create data');
  });

  it('says how to start a sandbox, and which variable has the key', () => {
    expect(
      words('failed_precondition', { state: 'stopped', sandbox: 'box' }, { hint: 'start it first' }),
    ).toEqual({
      message: 'As the API has it',
      hint: 'start it with "cay start box"',
    });
    expect(words('unauthenticated', {}, { hint: 'send a header' }).hint).toContain('CAY_API_KEY');
    expect(words('failed_precondition', { unencrypted: true }).hint).toContain('--insecure');
  });

  it.each([
    ['ECONNREFUSED', 'nothing listens there', 'cay up'],
    ['ENOTFOUND', 'the name is unknown', 'name servers'],
    ['DEPTH_ZERO_SELF_SIGNED_CERT', 'its certificate is not trusted', 'NODE_EXTRA_CA_CERTS'],
    ['ERR_SSL_WRONG_VERSION_NUMBER', 'it does not speak TLS', 'http://'],
  ])('says why a server cannot be reached: %s', (code, why, hint) => {
    const cause = new TypeError('fetch failed', { cause: Object.assign(new Error('x'), { code }) });
    const said = words('unavailable', { url: 'https://x' }, { cause });
    expect(said.message).toBe(`Cannot reach the server at https://x: ${why}`);
    expect(said.hint).toContain(hint);
  });

  it('takes no other failure for one to reach the server', () => {
    const cause = Object.assign(new Error('x'), { code: 'ECONNREFUSED' });
    const database = new CayError('unavailable', 'The database does not answer', { cause, hint: 'see it' });
    expect(inCliWords(database)).toMatchObject({ message: 'The database does not answer', hint: 'see it' });
  });

  it('says that a server may speak TLS', () => {
    const cause = new TypeError('fetch failed', {
      cause: Object.assign(new Error('x'), { code: 'ECONNRESET' }),
    });
    expect(words('unavailable', { url: 'http://x' }, { cause }).hint).toContain('https://');
  });

  it('shows no raw code of the operating system', () => {
    const raw = Object.assign(new Error("EACCES: permission denied, open '/x'"), {
      code: 'EACCES',
      syscall: 'open',
      path: '/x',
    });
    expect(inCliWords(raw)).toMatchObject({
      code: 'permission_denied',
      message: 'Cannot open "/x": permission denied',
    });
    expect(inCliWords(new Error('boom'))).toMatchObject({ code: 'internal', message: 'boom' });
  });
});
