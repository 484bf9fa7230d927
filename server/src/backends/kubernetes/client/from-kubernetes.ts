import { CayError, type CayErrorOptions, type ErrorCode } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { saidIn, timeoutIn } from '../../../lib/http-failure.ts';

const CODES: Record<number, ErrorCode> = {
  400: 'invalid_argument',
  401: 'permission_denied',
  403: 'permission_denied',
  404: 'not_found',
  405: 'unsupported',
  409: 'conflict',
  410: 'conflict',
  413: 'resource_exhausted',
  422: 'invalid_argument',
  429: 'resource_exhausted',
  500: 'unavailable',
  502: 'unavailable',
  503: 'unavailable',
  504: 'unavailable',
};

/** What refused a pod, by its message; the API server's status is 403 for all of them. */
const WORDED_FAILURES: [pattern: RegExp, code: ErrorCode, reason: string, hint: string][] = [
  [
    /exceeded quota/i,
    'resource_exhausted',
    'quota_exceeded',
    'Remove sandboxes or volumes, ask for less, or raise the ResourceQuota of the namespace',
  ],
  [
    /violates PodSecurity/i,
    'failed_precondition',
    'admission_refused',
    'The namespace asks for more than Pod Security "restricted", which every sandbox satisfies; see its labels "pod-security.kubernetes.io/…"',
  ],
  [
    /RuntimeClass\s+\\?"?[^"\s]+\\?"? not found/i,
    'not_found',
    'runtime_class_missing',
    'See "kubectl get runtimeclasses" for those that there are',
  ],
  [
    /(maximum|minimum) (cpu|memory|ephemeral-storage) usage|must be less than or equal to (cpu|memory) limit/i,
    'resource_exhausted',
    'limit_range',
    'Ask for limits that the LimitRange of the namespace allows',
  ],
  [
    /admission webhook .* denied|denied the request|ValidatingAdmissionPolicy/i,
    'failed_precondition',
    'admission_refused',
    'A policy of the cluster refuses the pod',
  ],
  [
    /namespaces? \\?"[^"]+\\?" not found/i,
    'not_found',
    'namespace_missing',
    'Make the namespace, or name another in the settings',
  ],
];

/** The code of a refusal that is reported in words only, as in an event or the message of an answer. */
export function refusalOf(
  said: string,
): { code: ErrorCode; details: { reason: string }; hint: string } | undefined {
  const found = WORDED_FAILURES.find(([pattern]) => pattern.test(said));
  return found && { code: found[1], details: { reason: found[2] }, hint: found[3] };
}

/** An answer of the API server that is not a success. `action` completes "Cannot …". */
export function fromKubernetesAnswer(status: number, body: string, action: string): CayError {
  const said = saidIn(body);
  const refusal = status === 403 || status === 404 || status === 422 ? refusalOf(said) : undefined;
  const options: CayErrorOptions = {
    details: { status, ...refusal?.details },
    ...(refusal && { hint: refusal.hint }),
  };
  if (!refusal && status === 403) {
    options.details = { status, reason: 'forbidden' };
    options.hint = 'Give the account of the server the right that is named';
  }
  if (status === 401)
    options.hint =
      'The credentials in the kubeconfig are not accepted; try "kubectl get pods" with the same one';
  return new CayError(
    refusal?.code ?? CODES[status] ?? 'internal',
    `Cannot ${action}: Kubernetes says "${said}"`,
    options,
  );
}

const AWAY = new Set([
  'ENOENT',
  'ECONNREFUSED',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ETIMEDOUT',
]);

/** A failure to reach the API server, or the end of the connection to it. */
export function fromKubernetes(error: unknown, action: string, where: string): CayError {
  if (error instanceof CayError) return error;
  const { name, code } = timeoutIn(error) ?? (error as NodeJS.ErrnoException);
  if (name === 'AbortError')
    return new CayError('cancelled', `Cannot ${action}: the caller gave up`, { cause: error });
  if (name === 'TimeoutError')
    return new CayError('deadline_exceeded', `Cannot ${action}: Kubernetes at "${where}" took too long`, {
      cause: error,
    });
  if (code !== undefined && AWAY.has(code)) {
    return new CayError('unavailable', `Cannot ${action}: no Kubernetes API server answers at "${where}"`, {
      cause: error,
      hint: 'see whether "kubectl get nodes" works with the same kubeconfig',
    });
  }
  return new CayError(
    'unavailable',
    `Cannot ${action}: the connection to Kubernetes at "${where}" broke: ${systemReason(error)}`,
    { cause: error },
  );
}
