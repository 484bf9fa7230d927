export { programLayer, writeImage } from '../../../packaging/images/image.ts';
