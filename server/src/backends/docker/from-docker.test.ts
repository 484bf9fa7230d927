import { CayError } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { fromDocker, fromDockerAnswer } from './from-docker.ts';

const answer = (status: number, message: string) =>
  fromDockerAnswer(status, JSON.stringify({ message }), 'start sandbox "s"');

describe('errors of the engine', () => {
  it('have the code of their status, and say what could not be done', () => {
    expect(answer(404, 'No such container: x')).toMatchObject({
      code: 'not_found',
      message: 'Cannot start sandbox "s": Docker says "No such container: x"',
    });
    expect(answer(400, 'bad')).toMatchObject({ code: 'invalid_argument' });
    expect(answer(409, 'name in use')).toMatchObject({ code: 'conflict' });
    expect(answer(500, 'boom')).toMatchObject({ code: 'internal' });
  });

  it('have a better code where the words tell more than the status', () => {
    expect(answer(500, 'write /x: no space left on device').code).toBe('resource_exhausted');
    expect(answer(409, 'Container x is not running').code).toBe('failed_precondition');
    expect(answer(500, 'pull access denied for x, repository does not exist').code).toBe('not_found');
  });

  it('are bounded, and may come from a proxy that speaks no JSON', () => {
    const error = fromDockerAnswer(503, `<html>${'x'.repeat(10_000)}`, 'list');
    expect(error.code).toBe('unavailable');
    expect(error.message.length).toBeLessThan(1200);
    expect(fromDockerAnswer(500, '', 'list').message).toBe('Cannot list: Docker says "nothing"');
  });

  it('that never got there say where the engine was looked for', () => {
    const refused = fromDocker(
      Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }),
      'list',
      'tcp://h:1',
    );
    expect(refused).toMatchObject({
      code: 'unavailable',
      message: 'Cannot list: no Docker engine answers at "tcp://h:1"',
    });
    expect(fromDocker(Object.assign(new Error('x'), { code: 'EACCES' }), 'list', 'w').hint).toContain(
      'group "docker"',
    );
    expect(fromDocker(new Error('socket hang up'), 'list', 'w').code).toBe('unavailable');
  });

  it('tell the caller who gave up from the clock', () => {
    const aborted = Object.assign(new Error('aborted', { cause: new Error('stop') }), { name: 'AbortError' });
    expect(fromDocker(aborted, 'list', 'w').code).toBe('cancelled');
    const timedOut = Object.assign(
      new Error('aborted', { cause: new DOMException('late', 'TimeoutError') }),
      { name: 'AbortError' },
    );
    expect(fromDocker(timedOut, 'list', 'w').code).toBe('deadline_exceeded');
  });

  it('that are ours already stay as they are', () => {
    const own = new CayError('unsupported', 'Cannot do it');
    expect(fromDocker(own, 'list', 'w')).toBe(own);
  });
});
