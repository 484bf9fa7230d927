import { anyText, choice, count, onOff, type checked } from './kinds.ts';
import { setting } from './setting.ts';

const ACCESS = ['ReadWriteOnce', 'ReadWriteMany'] as const;

/** Named volumes on Kubernetes. `amount` is one of a disk, as its backends read it. */
export function clusterVolumeSettings(amount: ReturnType<typeof checked>) {
  return {
    kubernetesQuotaVolumes: setting(count, {
      group: 'kubernetes',
      value: 'number',
      help: 'how many named volumes a project may have at once',
      default: '100',
    }),
    kubernetesQuotaStorage: setting(amount, {
      group: 'kubernetes',
      value: 'amount',
      help: 'what the volumes of a project may ask for together, such as 1Ti',
      usually: 'the usual size for each volume',
    }),
    kubernetesVolumeClass: setting(anyText, {
      group: 'kubernetes',
      value: 'name',
      help: 'the storage class of named volumes',
      usually: "the cluster's own",
    }),
    kubernetesVolumeSize: setting(amount, {
      group: 'kubernetes',
      value: 'amount',
      help: 'how much a named volume asks for that has no size of its own',
      usually: '10Gi',
    }),
    kubernetesVolumeSizeEnforced: setting(onOff, {
      group: 'kubernetes',
      help: 'storage of that class refuses what is beyond the size of a volume, so that clients may give one',
    }),
    kubernetesVolumeAccess: setting(choice(...ACCESS), {
      group: 'kubernetes',
      value: 'mode',
      help: 'the access mode of named volumes: by one node, or by many',
      choices: ACCESS,
      default: 'ReadWriteOnce',
    }),
  };
}
