/**
 * Confines the server's account to its own namespaces where it may make some. Rights over namespaces cannot
 * be given by label, so the API server is made to refuse all others. Without this an attacker who takes over
 * the server could give itself rights everywhere.
 */
import type { Declared } from '../client/apply.ts';
import { LABELS } from '../client/names.ts';
import type { Account } from './tenancy.ts';

const apiVersion = 'admissionregistration.k8s.io/v1';
const ENFORCE = 'pod-security.kubernetes.io/enforce';

export function serverPolicy(options: {
  installation: string;
  account: Account;
  labels: Record<string, string>;
}): Declared[] {
  const { installation, account, labels } = options;
  const name = `cay-server-${installation}`;
  const label = LABELS.installation;
  const says = (object: string, key: string, value: string) =>
    `has(${object}.metadata.labels) && '${key}' in ${object}.metadata.labels && ${object}.metadata.labels['${key}'] == '${value}'`;
  const isOurs = (object: string) => says(object, label, installation);
  const changes = { apiVersions: ['v1'], operations: ['CREATE', 'UPDATE', 'DELETE'] };
  return [
    {
      apiVersion,
      kind: 'ValidatingAdmissionPolicy',
      metadata: { name, labels },
      spec: {
        failurePolicy: 'Fail',
        matchConstraints: {
          resourceRules: [
            { apiGroups: [''], ...changes, resources: ['namespaces'] },
            { apiGroups: ['rbac.authorization.k8s.io'], ...changes, resources: ['rolebindings'] },
          ],
        },
        matchConditions: [
          {
            name: 'is-the-server',
            expression: `request.userInfo.username == 'system:serviceaccount:${account.namespace}:${account.name}'`,
          },
        ],
        validations: [
          {
            // The labels that the namespace had before count as well: adding a label does not make it ours.
            expression: `request.kind.kind != 'Namespace' || ((oldObject == null || (${isOurs('oldObject')})) && (object == null || (${isOurs('object')})))`,
            message: 'the server of Cay may change no namespaces but its own',
          },
          {
            // Otherwise a pod could be made there that controls its node.
            expression: `request.kind.kind != 'Namespace' || object == null || (${says('object', ENFORCE, 'restricted')})`,
            message: 'the server of Cay may have no namespace in which pods are not restricted',
          },
          {
            expression: `request.kind.kind != 'RoleBinding' || (${isOurs('namespaceObject')})`,
            message: 'the server of Cay may bind roles in no namespaces but its own',
          },
        ],
      },
    },
    {
      apiVersion,
      kind: 'ValidatingAdmissionPolicyBinding',
      metadata: { name, labels },
      spec: { policyName: name, validationActions: ['Deny'] },
    },
  ];
}
