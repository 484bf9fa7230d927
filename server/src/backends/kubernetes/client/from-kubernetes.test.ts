import { describe, expect, it } from 'vitest';
import { fromKubernetes, fromKubernetesAnswer } from './from-kubernetes.ts';

const said = (message: string) => JSON.stringify({ kind: 'Status', status: 'Failure', message });

describe('fromKubernetesAnswer', () => {
  const cases: [status: number, message: string, code: string, reason: string | undefined][] = [
    [
      403,
      'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2',
      'resource_exhausted',
      'quota_exceeded',
    ],
    [
      403,
      'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true',
      'failed_precondition',
      'admission_refused',
    ],
    [
      403,
      'pods "x" is forbidden: pod rejected: RuntimeClass "warp" not found',
      'not_found',
      'runtime_class_missing',
    ],
    [
      403,
      'pods "x" is forbidden: maximum cpu usage per Container is 1, but limit is 2',
      'resource_exhausted',
      'limit_range',
    ],
    [403, 'admission webhook "v.example" denied the request: no', 'failed_precondition', 'admission_refused'],
    [404, 'namespaces "nowhere" not found', 'not_found', 'namespace_missing'],
    [
      403,
      'jobs.batch is forbidden: User "u" cannot create resource "jobs"',
      'permission_denied',
      'forbidden',
    ],
    [401, 'Unauthorized', 'permission_denied', undefined],
    [409, 'jobs.batch "x" already exists', 'conflict', undefined],
    [429, 'too many requests', 'resource_exhausted', undefined],
    [503, 'etcd is away', 'unavailable', undefined],
    [418, 'tea', 'internal', undefined],
  ];
  it.each(cases)('%i %s', (status, message, code, reason) => {
    const error = fromKubernetesAnswer(status, said(message), 'create sandbox "sbx_1"');
    expect(error).toMatchObject({ code, details: { status, ...(reason && { reason }) } });
    expect(error.message).toBe(`Cannot create sandbox "sbx_1": Kubernetes says "${message}"`);
  });

  it('bounds what a proxy says instead', () => {
    expect(fromKubernetesAnswer(502, `<html>${'x'.repeat(10_000)}`, 'look').message.length).toBeLessThan(
      1100,
    );
  });
});

describe('fromKubernetes', () => {
  it('tells a server that is away from a connection that broke, and both from a caller who gave up', () => {
    const coded = (code: string) => Object.assign(new Error(code), { code });
    expect(fromKubernetes(coded('ECONNREFUSED'), 'look', 'https://k')).toMatchObject({
      code: 'unavailable',
      hint: expect.stringContaining('kubectl'),
    });
    expect(fromKubernetes(coded('ECONNRESET'), 'look', 'https://k').message).toContain('broke');
    expect(fromKubernetes(new DOMException('x', 'AbortError'), 'look', 'https://k').code).toBe('cancelled');
    expect(fromKubernetes(new DOMException('x', 'TimeoutError'), 'look', 'https://k').code).toBe(
      'deadline_exceeded',
    );
  });
});
