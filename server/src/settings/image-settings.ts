import { gathered, anyText, listOf, size } from './kinds.ts';
import { REGISTRY, mirrorsIn } from './registries.ts';
import { LISTED, setting } from './setting.ts';

/** Where images come from, and how much of them is kept. */
export const imageSettings = {
  registryConfig: setting(anyText, {
    group: 'images',
    value: 'file',
    help: "credentials for registries, as in Docker's config.json, for the images of every project",
    path: true,
  }),
  registryMirror: setting(gathered(mirrorsIn), {
    group: 'images',
    value: 'mirrors',
    help: `a mirror to ask before a registry, as REGISTRY=MIRROR; ${LISTED}`,
    repeat: true,
  }),
  allowRegistry: setting(listOf(REGISTRY, 'a registry: its host, and its port if it has one'), {
    group: 'images',
    value: 'hosts',
    help: `registries on this machine or in private networks that images may come from; ${LISTED}`,
    repeat: true,
  }),
  insecureRegistry: setting(listOf(REGISTRY, 'a registry: its host, and its port if it has one'), {
    group: 'images',
    value: 'hosts',
    help: `registries that are spoken to without TLS, wherever they are; ${LISTED}`,
    repeat: true,
  }),
  imageStore: setting(size, {
    group: 'images',
    value: 'size',
    help: 'disk for images; those unused for longest go first, of the project that has most',
    usually: '64g',
  }),
  maxImageSize: setting(size, {
    group: 'images',
    value: 'size',
    help: 'the most that an image may have unpacked',
    usually: '16g',
  }),
};
